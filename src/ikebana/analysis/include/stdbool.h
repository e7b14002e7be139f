/* Enough of <stdbool.h> to read source for which no compiler's headers are installed. */
#ifndef IKEBANA_STDBOOL_H
#define IKEBANA_STDBOOL_H
#define bool _Bool
#define true 1
#define false 0
#endif
