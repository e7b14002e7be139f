/* Enough of <float.h> to read source for which no compiler's headers are installed. */
#ifndef IKEBANA_FLOAT_H
#define IKEBANA_FLOAT_H
#define DBL_MAX __DBL_MAX__
#define DBL_MIN __DBL_MIN__
#define DBL_EPSILON __DBL_EPSILON__
#define DBL_DIG __DBL_DIG__
#define FLT_MAX __FLT_MAX__
#define FLT_EPSILON __FLT_EPSILON__
#endif
