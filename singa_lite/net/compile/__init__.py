"""`compile`: each option checked, and what is made of them."""
