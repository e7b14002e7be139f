/* Enough of <stdio.h> to read source for which no C library's headers are installed. */
#ifndef IKEBANA_STDIO_H
#define IKEBANA_STDIO_H
#include <stdarg.h>
#include <stddef.h>
typedef struct ikebana_file FILE;
extern FILE *stdin, *stdout, *stderr;
FILE *fopen(const char *, const char *);
int fclose(FILE *);
int printf(const char *, ...);
int fprintf(FILE *, const char *, ...);
int snprintf(char *, size_t, const char *, ...);
int sprintf(char *, const char *, ...);
int puts(const char *);
int fputs(const char *, FILE *);
char *fgets(char *, int, FILE *);
size_t fread(void *, size_t, size_t, FILE *);
size_t fwrite(const void *, size_t, size_t, FILE *);
#define EOF (-1)
#endif
