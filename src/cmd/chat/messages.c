#include "cmd/chat/messages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json/jread.h"
#include "base/json/jwrite.h"
#include "base/os/file.h"
#include "base/os/write_whole.h"

enum status chat_messages_init(struct chat_messages *messages, struct err *err) {
    json_t *list = json_array();
    json_t *root = json_object();
    if (!root || json_object_set(root, "messages", list) != 0) {
        json_decref(root);
        root = NULL;
    }
    json_decref(list);
    *messages = (struct chat_messages){.root = root, .list = json_object_get(root, "messages")};
    return root ? OK : err_nomem(err, "messages");
}

void chat_messages_fini(struct chat_messages *messages) {
    json_decref(messages->root);
    *messages = (struct chat_messages){0};
}

static json_t *message_create(const char *role, const char *text, size_t len) {
    json_t *message = json_object();
    if (json_object_set_new(message, "role", json_string(role)) != 0 ||
        json_object_set_new(message, "content", json_stringn(text, len)) != 0) {
        json_decref(message);
        return NULL;
    }
    return message;
}

enum status chat_messages_add(struct chat_messages *messages, const char *role, const char *text,
                              size_t len, struct err *err) {
    json_t *message = message_create(role, text, len);
    return json_array_append_new(messages->list, message) ? err_nomem(err, "message") : OK;
}

size_t chat_messages_count(const struct chat_messages *messages) {
    return json_array_size(messages->list);
}

void chat_messages_drop_last(struct chat_messages *messages) {
    json_array_remove(messages->list, chat_messages_count(messages) - 1);
}

static const char *role_of(const json_t *message) {
    const char *role = json_string_value(json_object_get(message, "role"));
    return role ? role : "";
}

const char *chat_messages_last_role(const struct chat_messages *messages) {
    size_t count = chat_messages_count(messages);
    return count ? role_of(json_array_get(messages->list, count - 1)) : "";
}

static json_t *system_message(const struct chat_messages *messages) {
    json_t *first = json_array_get(messages->list, 0);
    return strcmp(role_of(first), "system") == 0 ? first : NULL;
}

void chat_messages_clear(struct chat_messages *messages) {
    size_t kept = system_message(messages) ? 1 : 0;
    while (chat_messages_count(messages) > kept) chat_messages_drop_last(messages);
}

const char *chat_messages_system(const struct chat_messages *messages) {
    return json_string_value(json_object_get(system_message(messages), "content"));
}

enum status chat_messages_set_system(struct chat_messages *messages, const char *text, size_t len,
                                     struct err *err) {
    bool present = system_message(messages) != NULL;
    if (!text) {
        if (present) json_array_remove(messages->list, 0);
        return OK;
    }
    json_t *message = message_create("system", text, len);
    int failed = present ? json_array_set_new(messages->list, 0, message)
                         : json_array_insert_new(messages->list, 0, message);
    return failed ? err_nomem(err, "system prompt") : OK;
}

enum status chat_messages_set_kwargs(struct chat_messages *messages, json_t *kwargs,
                                     struct err *err) {
    static const char key[] = "chat_template_kwargs";
    if (json_object_size(kwargs) == 0) return OK;
    json_t *own = json_object();
    json_t *present = json_object_get(messages->root, key);
    bool failed = !own || (json_is_object(present) && json_object_update(own, present)) ||
                  json_object_update(own, kwargs) || json_object_set(messages->root, key, own);
    json_decref(own);
    return failed ? err_nomem(err, "template variables") : OK;
}

enum status chat_messages_text(const struct chat_messages *messages, struct buf *text,
                               struct err *err) {
    buf_clear(text);
    return jwrite(text, messages->root, JSON_COMPACT, "messages", err);
}

enum status chat_messages_save(const struct chat_messages *messages, const char *path, bool replace,
                               struct err *err) {
    struct buf text = {0};
    enum status status = jwrite(&text, messages->root, JSON_INDENT(2), "messages", err);
    if (!status) status = buf_append(&text, "\n", 1, err);
    if (!status) status = chat_file_write(path, text.data, text.len, replace, err);
    buf_fini(&text);
    return status;
}

static enum status check_message(const json_t *message, size_t index, const char *path,
                                 struct err *err) {
    if (!json_is_object(message)) {
        return err_set(err, ERR_FORMAT, "%s: message %zu is %s, want an object", path, index,
                       jread_type_name(message));
    }
    const json_t *role = json_object_get(message, "role");
    if (json_is_string(role)) return OK;
    return err_set(err, ERR_FORMAT, "%s: message %zu has no \"role\" that is a string", path,
                   index);
}

// Makes the document an object with a list of messages. *root is the caller's even on failure.
static enum status check_root(json_t **root, const char *path, struct err *err) {
    if (json_is_array(*root)) {
        json_t *object = json_object();
        int failed = json_object_set(object, "messages", *root);
        json_decref(*root);
        *root = object;
        if (failed) return err_nomem(err, "messages");
    }
    const json_t *list = json_object_get(*root, "messages");
    if (!json_is_array(list)) {
        return err_set(err, ERR_FORMAT,
                       "%s holds no conversation, want a list of messages or an object with "
                       "\"messages\"",
                       path);
    }
    size_t index;
    json_t *message;
    json_array_foreach(list, index, message) {
        enum status status = check_message(message, index, path, err);
        if (status) return status;
    }
    return OK;
}

enum status chat_messages_load(struct chat_messages *messages, const char *path, struct err *err) {
    struct buf text = {0};
    json_t *root = NULL;
    enum status status = file_read(&text, path, err);
    if (!status) status = jread_request(&root, text.data, text.len, path, err);
    buf_fini(&text);
    if (!status) status = check_root(&root, path, err);
    if (status) {
        json_decref(root);
        return status;
    }
    // Removes the members that set a prompt's end: it is decided anew for every answer.
    json_object_del(root, "add_generation_prompt");
    json_object_del(root, "continue_final_message");
    chat_messages_fini(messages);
    *messages = (struct chat_messages){.root = root, .list = json_object_get(root, "messages")};
    return OK;
}

// ---- files ----

static enum status write_fault(const char *path, struct err *err) {
    return err_set(err, ERR_IO, "cannot write %s: %s", path, strerror(errno));
}

// Writes all bytes to the disk. Always closes `fd`.
static enum status write_and_close(int fd, const char *path, const char *bytes, size_t len,
                                   struct err *err) {
    enum status status = write_whole(fd, bytes, len) ? OK : write_fault(path, err);
    if (!status && fsync(fd) != 0) status = write_fault(path, err);
    if (close(fd) != 0 && !status) status = write_fault(path, err);
    return status;
}

static enum status write_beside(const char *path, mode_t mode, const void *bytes, size_t len,
                                struct err *err) {
    char name[FILE_PATH_MAX];
    if ((size_t)snprintf(name, sizeof name, "%s.XXXXXX", path) >= sizeof name) {
        return err_set(err, ERR_INVALID, "%s: the path is too long", path);
    }
    int fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0) return write_fault(path, err);
    enum status status = fchmod(fd, mode & 07777) != 0 ? write_fault(path, err) : OK;
    if (status) {
        close(fd);
    } else {
        status = write_and_close(fd, path, bytes, len, err);
    }
    if (!status && rename(name, path) != 0) status = write_fault(path, err);
    if (status) unlink(name);
    return status;
}

enum status chat_file_write(const char *path, const void *bytes, size_t len, bool replace,
                            struct err *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) {
        enum status status = write_and_close(fd, path, bytes, len, err);
        if (status) unlink(path);
        return status;
    }
    if (errno != EEXIST) return write_fault(path, err);
    if (!replace) return err_set(err, ERR_INVALID, "%s exists", path);
    char *target = realpath(path, NULL);
    if (!target && errno == ENOMEM) return err_nomem(err, "path");
    if (!target) return write_fault(path, err);
    struct stat info;
    enum status status = stat(target, &info) != 0 ? write_fault(path, err) : OK;
    if (!status && !S_ISREG(info.st_mode)) {
        status = err_set(err, ERR_INVALID, "%s is not a regular file", path);
    }
    if (!status) status = write_beside(target, info.st_mode, bytes, len, err);
    free(target);
    return status;
}
