#include "model/load/conv_load.h"

#include "model/load/state_load.h"

enum status conv_load(struct loader *l, uint32_t index, struct decoder_layer *layer) {
    const struct decoder *d = l->decoder;
    uint32_t hidden = d->config->hidden_size, start = d->shape.conv_start;
    uint32_t size = d->shape.conv_size;
    const struct layer_formats formats = linear_formats_layer(&d->formats, index);
    const struct state_part own = {start, size};
    struct row_part parts[3]; // b, c and x
    for (uint32_t i = 0; i < ARRAY_LEN(parts); i++) {
        parts[i] = (struct row_part){.module = CONV_IN_MODULE,
                                     .rows = 3 * hidden,
                                     .start = i * hidden + start,
                                     .count = size};
    }
    const struct row_linear in = {parts, ARRAY_LEN(parts), formats.qkv, &layer->qkv};
    const struct col_part out = {CONV_OUT_MODULE, hidden, hidden, start, size, formats.o};
    enum status status = loader_load_rows(l, index, &in, 1, hidden, false);
    if (!status) status = loader_load_cols(l, index, &out, false, &layer->o);
    if (status) return status;
    return state_load_taps(l, index, "conv.conv", hidden, SHORT_CONV_TAPS, &own, 1,
                           &layer->conv_taps);
}
