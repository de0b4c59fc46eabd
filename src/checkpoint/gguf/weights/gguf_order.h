/* The order in which a file stores the rows, or the columns, of a tensor. In GGUF, the heads of
 * gated delta nets may be in another order than in Hugging Face's checkpoints. */
#ifndef CHECKPOINT_GGUF_GGUF_ORDER_H
#define CHECKPOINT_GGUF_GGUF_ORDER_H

#include <stdbool.h>
#include <stdint.h>

// The elements from `first` on are num_groups groups of num_members heads, each of `run` elements.
// Stored are the first head of every group, then the second of every group, and so on. Elements
// before `first` are where they are.
struct gguf_order {
    uint64_t first, num_groups, num_members;
    uint64_t run; // 0: every element is where it is
};

static inline uint64_t gguf_stored_at(const struct gguf_order *order, uint64_t element) {
    if (!order->run || element < order->first) return element;
    uint64_t at = element - order->first, head = at / order->run;
    uint64_t stored = head % order->num_members * order->num_groups + head / order->num_members;
    return order->first + stored * order->run + at % order->run;
}

// Whether `count` elements are those before `first` and all groups. Otherwise gguf_stored_at may
// give a place beyond them.
static inline bool gguf_order_fits(const struct gguf_order *order, uint64_t count) {
    if (!order->run) return true;
    uint64_t elements = order->num_groups * order->num_members * order->run;
    return count >= order->first && count - order->first == elements;
}

#endif
