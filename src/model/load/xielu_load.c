#include "model/load/xielu_load.h"

#include <math.h>
#include <stdlib.h>

static enum status read_number(struct loader *l, const char *name, float *out) {
    const uint64_t shape[1] = {1};
    float *value = NULL;
    enum status status = loader_read_floats(l, name, 1, shape, &value);
    if (!status) *out = *value;
    free(value);
    return status;
}

// A checkpoint may have these constants too. Dummy weights would have zeros.
static enum status check_constant(struct loader *l, uint32_t index, const char *module,
                                  float want) {
    char name[WEIGHT_NAME_BYTES];
    float found = 0;
    layer_weight_name(name, index, module, "");
    if (weights_is_dummy(l->weights) || !weights_has(l->weights, name)) return OK;
    enum status status = read_number(l, name, &found);
    if (status) return status;
    if (fabsf(found - want) <= fabsf(want) / 100) return OK; // it may be rounded to bf16
    return err_set(l->err, ERR_UNSUPPORTED, "%s is %.9g, which is not supported, want it %.9g",
                   name, (double)found, (double)want);
}

static enum status load_softplus(struct loader *l, uint32_t index, const char *module, float *out) {
    char name[WEIGHT_NAME_BYTES];
    float value = 0;
    layer_weight_name(name, index, module, "");
    enum status status = read_number(l, name, &value);
    *out = log1pf(expf(value));
    return status;
}

enum status xielu_load(struct loader *l, uint32_t index, struct decoder_layer *layer) {
    const float beta = 0.5f;
    if (l->decoder->table->layers[index].activation != ACTIVATION_XIELU) return OK;
    enum status status = check_constant(l, index, "mlp.act_fn.beta", beta);
    if (!status) status = check_constant(l, index, "mlp.act_fn.eps", XIELU_EPS);
    if (!status) status = load_softplus(l, index, "mlp.act_fn.alpha_p", &layer->xielu[0]);
    if (!status) status = load_softplus(l, index, "mlp.act_fn.alpha_n", &layer->xielu[1]);
    layer->xielu[1] += beta;
    return status;
}
