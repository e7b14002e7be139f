/* Enough of <stdlib.h> to read source for which no C library's headers are installed. */
#ifndef IKEBANA_STDLIB_H
#define IKEBANA_STDLIB_H
#include <stddef.h>
void *malloc(size_t);
void *calloc(size_t, size_t);
void *realloc(void *, size_t);
void free(void *);
char *getenv(const char *);
long strtol(const char *, char **, int);
int atoi(const char *);
void exit(int);
void abort(void);
int abs(int);
void qsort(void *, size_t, size_t, int (*)(const void *, const void *));
#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1
#endif
