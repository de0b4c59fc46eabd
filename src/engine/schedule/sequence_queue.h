/* Sequences in the order of sequence_comes_before: by priority, then by arrival.
 *
 * They are a list, which is walked by `next`, and a treap over it, which finds a place in it: a
 * search tree in that order whose parents have the larger random key. Its expected depth is
 * O(log count) for every order of insertions and removals, so neither thousands of different
 * priorities nor their aborts cost more than that for each. Links are in the sequences, so nothing
 * is allocated. */
#ifndef ENGINE_SEQUENCE_QUEUE_H
#define ENGINE_SEQUENCE_QUEUE_H

#include "engine/schedule/sequence.h"

struct sequence_queue {
    struct sequence *head, *tail; // of the list
    struct sequence *root; // of the treap
    uint32_t count;
};

// Both walk one way from the root down. seq->queue_key is set: random, and unknown to whoever
// chooses priorities.
void sequence_queue_insert(struct sequence_queue *queue, struct sequence *seq);
void sequence_queue_remove(struct sequence_queue *queue, struct sequence *seq);

#endif
