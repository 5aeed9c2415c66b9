"""View trees at run time: their stores, their delta programs and walks over them."""
