/* Enough of <stddef.h> to read source for which no compiler's headers are installed. */
#ifndef IKEBANA_STDDEF_H
#define IKEBANA_STDDEF_H
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef __WCHAR_TYPE__ wchar_t;
typedef struct { long long a; long double b; } max_align_t;
#define offsetof(type, member) __builtin_offsetof(type, member)
#endif
#ifndef NULL
#define NULL ((void *)0)
#endif
#ifdef __need_wint_t
typedef __WINT_TYPE__ wint_t;
#undef __need_wint_t
#endif
