#include "server/loop/mailbox.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct mailbox {
    pthread_mutex_t lock;
    struct mail_list list;
    int fd; // an eventfd: readable when letters lie there
    struct event *event;
};

void mail_list_add(struct mail_list *list, struct mail *mail) {
    mail->next = NULL;
    if (list->last) {
        list->last->next = mail;
    } else {
        list->first = mail;
    }
    list->last = mail;
}

static void handle_all(struct mailbox *mailbox) {
    pthread_mutex_lock(&mailbox->lock);
    struct mail *mail = mailbox->list.first;
    mailbox->list = (struct mail_list){0};
    pthread_mutex_unlock(&mailbox->lock);
    while (mail) {
        struct mail *next = mail->next; // handling may free it
        mail->handle(mail);
        mail = next;
    }
}

static void on_ready(evutil_socket_t fd, short what, void *arg) {
    (void)what;
    uint64_t count;
    ssize_t got =
        read(fd, &count, sizeof count); // before the letters are taken, so that none is missed
    (void)got;
    handle_all(arg);
}

struct mailbox *mailbox_create(struct event_base *base) {
    struct mailbox *mailbox = calloc(1, sizeof *mailbox);
    if (!mailbox) return NULL;
    pthread_mutex_init(&mailbox->lock, NULL);
    mailbox->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (mailbox->fd >= 0) {
        mailbox->event = event_new(base, mailbox->fd, EV_READ | EV_PERSIST, on_ready, mailbox);
    }
    if (mailbox->event && event_add(mailbox->event, NULL) == 0) return mailbox;
    mailbox_destroy(mailbox);
    return NULL;
}

void mailbox_destroy(struct mailbox *mailbox) {
    if (!mailbox) return;
    handle_all(mailbox);
    if (mailbox->event) event_free(mailbox->event);
    if (mailbox->fd >= 0) close(mailbox->fd);
    pthread_mutex_destroy(&mailbox->lock);
    free(mailbox);
}

void mailbox_send(struct mailbox *mailbox, struct mail_list *list) {
    if (!list->first) return;
    pthread_mutex_lock(&mailbox->lock);
    bool was_empty = !mailbox->list.first;
    if (was_empty) {
        mailbox->list = *list;
    } else {
        mailbox->list.last->next = list->first;
        mailbox->list.last = list->last;
    }
    pthread_mutex_unlock(&mailbox->lock);
    *list = (struct mail_list){0};
    if (!was_empty) return;
    const uint64_t one = 1;
    ssize_t sent = write(mailbox->fd, &one, sizeof one); // full is as good as written
    (void)sent;
}

void mailbox_send_one(struct mailbox *mailbox, struct mail *mail) {
    struct mail_list list = {0};
    mail_list_add(&list, mail);
    mailbox_send(mailbox, &list);
}
