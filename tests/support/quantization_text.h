/* "quantization_config" as a text. A text with "architectures" is all of config.json. */
#ifndef SUPPORT_QUANTIZATION_TEXT_H
#define SUPPORT_QUANTIZATION_TEXT_H

#include "checkpoint/quantized/quantization_config.h"

struct quantization_config quantization_read(const char *text); // the caller frees it
// It is refused, by a sentence that has `words`.
void quantization_refused(enum status status, const char *text, const char *words);

#endif
