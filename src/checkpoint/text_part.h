/* The text model inside a checkpoint of several models, such as Qwen3-VL or Mistral Small 3. Its
 * configuration is "text_config", or in Qwen2-VL and 2.5 the rest of config.json. Its tensors may
 * have a prefix of their own. What belongs to images, video and sound is left out knowingly:
 * text is answered as if the rest were not there. */
#ifndef CHECKPOINT_TEXT_PART_H
#define CHECKPOINT_TEXT_PART_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

// *out: a configuration of the text model alone, as a checkpoint of it would have; the caller
// decrefs it. Of a text model alone it is `root` itself, or a copy with an ordinary rope.
MUST_USE enum status text_part_config(json_t **out, json_t *root, const char *what,
                                      struct err *err);

enum { TEXT_PART_GROWS = 8 }; // bytes by which such a name may be longer

// The name that a tensor has in a checkpoint of the text model alone: "model.layers.0..." for
// "model.language_model.layers.0...", "language_model.model.layers.0..." and "layers.0...". It is
// written to `out`, which holds `size` bytes. False: the tensor belongs to another part.
bool text_part_tensor_name(const char *name, char *out, size_t size);

#endif
