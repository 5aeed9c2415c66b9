"""Kernels that run delta programs, enumerate trees and pack rows."""
