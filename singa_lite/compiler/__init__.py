"""From a record to a program that needs less memory: dead code, views, in-place writes, order, lifespans."""
