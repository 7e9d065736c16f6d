/* From which headers this file of loops was compiled, as a hash that setup.py hands over: library.py reads the types of
 * arguments from the headers that it finds, and refuses a file that was compiled from others. */
#ifdef __clang__
#error "GCC is wanted: Clang brings an OpenMP of its own, beside that of oneDNN"
#endif

const char *const compiled_headers = HEADERS;
