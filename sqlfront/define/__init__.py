"""CREATE, ALTER, DROP and REFRESH of views and change tables, and what the file remembers of them."""
