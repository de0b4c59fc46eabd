#include "server/loop/loop_queue.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct loop_queue {
    pthread_mutex_t lock;
    struct loop_message_list list;
    int fd; // an eventfd: readable when messages lie there
    struct event *event;
};

void loop_message_list_add(struct loop_message_list *list, struct loop_message *message) {
    message->next = NULL;
    if (list->last) {
        list->last->next = message;
    } else {
        list->first = message;
    }
    list->last = message;
}

static void handle_all(struct loop_queue *loop_queue) {
    pthread_mutex_lock(&loop_queue->lock);
    struct loop_message *message = loop_queue->list.first;
    loop_queue->list = (struct loop_message_list){0};
    pthread_mutex_unlock(&loop_queue->lock);
    while (message) {
        struct loop_message *next = message->next; // handling may free it
        message->handle(message);
        message = next;
    }
}

static void on_ready(evutil_socket_t fd, short what, void *arg) {
    (void)what;
    uint64_t count;
    ssize_t got =
        read(fd, &count, sizeof count); // before the messages are taken, so that none is missed
    (void)got;
    handle_all(arg);
}

struct loop_queue *loop_queue_create(struct event_base *base) {
    struct loop_queue *loop_queue = calloc(1, sizeof *loop_queue);
    if (!loop_queue) return NULL;
    pthread_mutex_init(&loop_queue->lock, NULL);
    loop_queue->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop_queue->fd >= 0) {
        loop_queue->event =
            event_new(base, loop_queue->fd, EV_READ | EV_PERSIST, on_ready, loop_queue);
    }
    if (loop_queue->event && event_add(loop_queue->event, NULL) == 0) return loop_queue;
    loop_queue_destroy(loop_queue);
    return NULL;
}

void loop_queue_destroy(struct loop_queue *loop_queue) {
    if (!loop_queue) return;
    handle_all(loop_queue);
    if (loop_queue->event) event_free(loop_queue->event);
    if (loop_queue->fd >= 0) close(loop_queue->fd);
    pthread_mutex_destroy(&loop_queue->lock);
    free(loop_queue);
}

void loop_queue_send(struct loop_queue *loop_queue, struct loop_message_list *list) {
    if (!list->first) return;
    pthread_mutex_lock(&loop_queue->lock);
    bool was_empty = !loop_queue->list.first;
    if (was_empty) {
        loop_queue->list = *list;
    } else {
        loop_queue->list.last->next = list->first;
        loop_queue->list.last = list->last;
    }
    pthread_mutex_unlock(&loop_queue->lock);
    *list = (struct loop_message_list){0};
    if (!was_empty) return;
    const uint64_t one = 1;
    ssize_t sent = write(loop_queue->fd, &one, sizeof one); // full is as good as written
    (void)sent;
}

void loop_queue_send_one(struct loop_queue *loop_queue, struct loop_message *message) {
    struct loop_message_list list = {0};
    loop_message_list_add(&list, message);
    loop_queue_send(loop_queue, &list);
}
