/* A small model with recurrent layers and the bundled model's tokenizer: a folder without weights,
 * for random ones. */
#ifndef SUPPORT_RECURRENT_MODEL_H
#define SUPPORT_RECURRENT_MODEL_H

#include "support/temp_folder.h"

// 4 of its 6 layers have a state: 4 heads of 32 x 32 floats, and 3 tokens of 256 channels.
enum { RECURRENT_STATE_BYTES = 4 * (4 * 32 * 32 + 3 * 256) * 4 };

void recurrent_model_create(struct temp_folder *folder); // temp_folder_remove removes it

#endif
