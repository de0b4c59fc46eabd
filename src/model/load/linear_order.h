/* The order in which a step runs a decoder's linears. */
#ifndef MODEL_LINEAR_ORDER_H
#define MODEL_LINEAR_ORDER_H

#include "model/decoder_internal.h"

// Tells the backend which linear runs after which, so that it may fetch weights early.
void linear_order_tell(struct decoder *decoder);

#endif
