/* Messages from other threads to the loop's thread. Sending never waits for the loop; however many
 * messages lie there, the loop is woken once. */
#ifndef SERVER_LOOP_QUEUE_H
#define SERVER_LOOP_QUEUE_H

#include <event2/event.h>

// Part of a larger struct. Whoever handles it owns it.
struct loop_message {
    struct loop_message *next;
    void (*handle)(struct loop_message *message); // on the loop's thread
};

// Messages in the order of their arrival, before they are sent. All-zero is empty.
struct loop_message_list {
    struct loop_message *first, *last;
};
void loop_message_list_add(struct loop_message_list *list, struct loop_message *message);

struct loop_queue;

struct loop_queue *loop_queue_create(struct event_base *base); // NULL: no memory or descriptors
// Handles the messages that are still in it.
void loop_queue_destroy(struct loop_queue *loop_queue); // NULL is fine
// Any thread. The list is empty afterwards; an empty one sends nothing.
void loop_queue_send(struct loop_queue *loop_queue, struct loop_message_list *list);
void loop_queue_send_one(struct loop_queue *loop_queue, struct loop_message *message);

#endif
