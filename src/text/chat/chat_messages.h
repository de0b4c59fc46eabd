/* A chat's JSON, checked and brought into the form that templates read. Each fault is one sentence
 * that names the place: "messages[2].content[0] is ...". */
#ifndef TEXT_CHAT_MESSAGES_H
#define TEXT_CHAT_MESSAGES_H

#include <jansson.h>
#include <stdbool.h>

#include "text/chat/chat_now.h"

// Kinds of an assistant's message without content: it calls tools, or it does not.
enum chat_shape { CHAT_WITH_CALLS, CHAT_WITHOUT_CALLS, NUM_CHAT_SHAPES };

// Which forms of content and of arguments a template reads.
struct chat_forms {
    bool developer; // messages of this role; else they are given the role system
    bool system; // a message of this role in front of a user's
    bool systems; // two such messages; else those at the beginning are joined
    bool text_arguments; // a call's arguments as text of JSON, as they are in the API; else objects
    bool parts; // a list of parts; else strings only
    bool tools; // the list of tools; else chats with tools are refused
    bool calls; // an assistant's tool calls; else chats with them are refused
    bool null[NUM_CHAT_SHAPES]; // an assistant's null content; else replaced by an empty string
    bool missing[NUM_CHAT_SHAPES]; // an assistant's missing content; else treated as null
};

struct chat {
    json_t *root; // a reference of its own; the others but `messages` borrow from it
    bool is_shared; // root is somebody else's too: what is changed is copied before
    json_t *messages; // a list, a reference of its own
    json_t *tools, *documents; // lists; NULL: not given
    json_t *template_kwargs; // an object; NULL: not given
    bool add_generation_prompt, continue_final_message;
    struct chat_now now; // the time that the chat gives, else the clock's
    size_t memory_left; // bytes for further trees (jread_request_part)
    size_t num_joined; // messages that chat_normalize joined to the first one
};

MUST_USE enum status chat_read(struct chat *chat, const char *text, size_t len, struct err *err);
// The same for a tree, which is never changed. `memory_left` is for trees of texts inside it.
MUST_USE enum status chat_read_json(struct chat *chat, const json_t *root, size_t memory_left,
                                    struct err *err);
void chat_fini(struct chat *chat); // all-zero is fine
// Brings the messages into the forms that the template reads: arguments of tool calls become
// objects, or text. Lists of text parts, null content, missing content, the role developer
// and several messages of the system become what `forms` say.
// ERR_UNSUPPORTED: the text of arguments is nested too deep or takes too much memory.
MUST_USE enum status chat_normalize(struct chat *chat, const struct chat_forms *forms,
                                    struct err *err);

// The item of a list, or the member of an object, of chat->messages or of what is in it, so that it
// may be changed: in a shared chat a copy takes its place. NULL: no memory.
json_t *chat_own_item(const struct chat *chat, json_t *list, size_t index);
json_t *chat_own_member(const struct chat *chat, json_t *object, const char *key);

// For continue_final_message: appends a mark to the last text of the last message. *text is that
// text without the mark, owned by the caller (json_decref).
MUST_USE enum status chat_mark_end(struct chat *chat, json_t **text, struct err *err);
// Cuts the prompt, which begins at `start` of `out`, before the mark. ERR_INVALID: the template
// left out the text or the mark.
MUST_USE enum status chat_cut_at_mark(struct buf *out, size_t start, const json_t *text,
                                      struct err *err);

// Whether the prompt has the texts of all messages, but those of users and assistants, in the order
// of the chat. Where it has not, the template may still show them in another form or order.
bool chat_shows_texts(const struct chat *chat, const char *prompt, size_t prompt_len);
// Puts marks in place of these texts.
MUST_USE enum status chat_mark_texts(struct chat *chat, struct err *err);
// ERR_INVALID: the prompt of the marked chat lacks a mark. A first message with the role system is
// excused with forms->system: in which turns it is shown is then the template's choice.
MUST_USE enum status chat_check_marks(const struct chat *chat, const struct chat_forms *forms,
                                      const char *prompt, size_t prompt_len, struct err *err);

#endif
