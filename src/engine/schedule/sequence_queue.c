#include "engine/schedule/sequence_queue.h"

#include <stddef.h>

static void link_between(struct sequence_queue *queue, struct sequence *prev, struct sequence *seq,
                         struct sequence *next) {
    seq->prev = prev;
    seq->next = next;
    *(prev ? &prev->next : &queue->head) = seq;
    *(next ? &next->prev : &queue->tail) = seq;
}

// The way to the new node's place meets its neighbours in the list: `prev` is the last node on it
// that comes before seq, `next` the last one that comes after. The subtree that stood at the place
// is split around seq on the rest of that way.
void sequence_queue_insert(struct sequence_queue *queue, struct sequence *seq) {
    struct sequence **place = &queue->root, *prev = NULL, *next = NULL, *node;
    while ((node = *place) && node->queue_key >= seq->queue_key) {
        if (sequence_comes_before(seq, node)) {
            next = node;
            place = &node->left;
        } else {
            prev = node;
            place = &node->right;
        }
    }
    struct sequence **before = &seq->left, **after = &seq->right;
    *place = seq;
    while (node) {
        if (sequence_comes_before(seq, node)) {
            next = *after = node;
            after = &node->left;
            node = node->left;
        } else {
            prev = *before = node;
            before = &node->right;
            node = node->right;
        }
    }
    *before = *after = NULL;
    link_between(queue, prev, seq, next);
    queue->count++;
}

// The place of the removed node gets its two subtrees merged: all of `before` comes before all of
// `after`, and the larger key goes up.
void sequence_queue_remove(struct sequence_queue *queue, struct sequence *seq) {
    struct sequence **place = &queue->root;
    while (*place != seq) {
        place = sequence_comes_before(seq, *place) ? &(*place)->left : &(*place)->right;
    }
    struct sequence *before = seq->left, *after = seq->right;
    while (before && after) {
        if (before->queue_key >= after->queue_key) {
            *place = before;
            place = &before->right;
            before = before->right;
        } else {
            *place = after;
            place = &after->left;
            after = after->left;
        }
    }
    *place = before ? before : after;
    *(seq->prev ? &seq->prev->next : &queue->head) = seq->next;
    *(seq->next ? &seq->next->prev : &queue->tail) = seq->prev;
    seq->prev = seq->next = seq->left = seq->right = NULL;
    queue->count--;
}
