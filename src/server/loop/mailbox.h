/* Letters from other threads to the loop's thread. Sending never waits for the loop; however many
 * letters lie there, the loop is woken once. */
#ifndef SERVER_MAILBOX_H
#define SERVER_MAILBOX_H

#include <event2/event.h>

// Part of a larger struct. Whoever handles it owns it.
struct mail {
    struct mail *next;
    void (*handle)(struct mail *mail); // on the loop's thread
};

// Letters in the order of their arrival, before they are sent. All-zero is empty.
struct mail_list {
    struct mail *first, *last;
};
void mail_list_add(struct mail_list *list, struct mail *mail);

struct mailbox;

struct mailbox *mailbox_create(struct event_base *base); // NULL: no memory or descriptors
// What was not handled is handled now.
void mailbox_destroy(struct mailbox *mailbox); // NULL is fine
// Any thread. The list is empty afterwards; an empty one sends nothing.
void mailbox_send(struct mailbox *mailbox, struct mail_list *list);
void mailbox_send_one(struct mailbox *mailbox, struct mail *mail);

#endif
