/* The order in which a file stores the rows, or the columns, of a tensor. In GGUF, heads
 * or a head's elements may be in another order than in Hugging Face's checkpoints. */
#ifndef CHECKPOINT_GGUF_GGUF_ORDER_H
#define CHECKPOINT_GGUF_GGUF_ORDER_H

#include <stdbool.h>
#include <stdint.h>

// The elements from `first` on are groups of num_members heads, each of `run` elements. Element
// ((group * num_members + member) * run + i) of them is stored at first + group * group_stride +
// member * member_stride + i * stride. Those before `first` are where they are.
struct gguf_order {
    uint64_t first, num_members, run; // run 0: every element is where it is
    uint64_t num_groups; // 0: any number
    uint64_t group_stride, member_stride, stride;
};

// Rows of heads for a rotation of neighbours, not of halves; head_dim is even.
static inline struct gguf_order gguf_order_interleaved(uint64_t head_dim) {
    return (struct gguf_order){.num_members = 2,
                               .run = head_dim / 2,
                               .group_stride = head_dim,
                               .member_stride = 1,
                               .stride = 2};
}

// num_keys groups of `num_members` heads, each of `run` elements: the first of every group, then
// the second of every group, and so on.
static inline struct gguf_order gguf_order_tiled(uint64_t first, uint64_t num_keys,
                                                 uint64_t num_members, uint64_t run) {
    return (struct gguf_order){.first = first,
                               .num_members = num_members,
                               .run = run,
                               .num_groups = num_keys,
                               .group_stride = run,
                               .member_stride = num_keys * run,
                               .stride = 1};
}

static inline uint64_t gguf_stored_at(const struct gguf_order *order, uint64_t element) {
    if (!order->run || element < order->first) return element;
    uint64_t at = element - order->first, head = at / order->run;
    return order->first + head / order->num_members * order->group_stride +
           head % order->num_members * order->member_stride + at % order->run * order->stride;
}

// Whether `count` elements are those before `first` and num_groups whole groups. Otherwise
// gguf_stored_at may give a place beyond them.
static inline bool gguf_order_fits(const struct gguf_order *order, uint64_t count) {
    if (!order->run) return true;
    uint64_t group = order->num_members * order->run;
    if (count < order->first || (count - order->first) % group) return false;
    return !order->num_groups || (count - order->first) / group == order->num_groups;
}

#endif
