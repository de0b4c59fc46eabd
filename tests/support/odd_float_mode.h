/* A floating-point mode that changes most results: subnormal numbers are zero, the rest is rounded
 * up. */
#ifndef TESTS_SUPPORT_ODD_FLOAT_MODE_H
#define TESTS_SUPPORT_ODD_FLOAT_MODE_H

#include "base/thread/float_mode.h"

#if defined(__x86_64__)
#define ODD_FLOAT_MODE (FLOAT_MODE_DEFAULT | 0x8000 | 0x4000 | 0x0040) // FTZ, upwards, DAZ
#elif defined(__aarch64__)
#define ODD_FLOAT_MODE (1 << 24 | 1 << 22) // FZ, upwards
#else
#define ODD_FLOAT_MODE FLOAT_MODE_DEFAULT // float_mode.h leaves the mode alone
#endif

#endif
