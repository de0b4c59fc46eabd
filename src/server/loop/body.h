/* The JSON body of an API request, member by member. A member that is null counts as absent, and
 * leaves *out as it is. Members that nobody reads are ignored, and named in the log. A wrong type
 * or range sets the request's error, with the member's name, and returns false. */
#ifndef SERVER_BODY_H
#define SERVER_BODY_H

#include "server/loop/api_request.h"

// Parses request->body, which it frees, into request->root, an object.
bool body_parse(struct api_request *request);
// Frees the members that no answer needs.
void body_forget(struct api_request *request);
// NULL: absent or null. `key` is a literal, as in all functions below.
json_t *body_get(struct api_request *request, const char *key);
bool body_bool(struct api_request *request, const char *key, bool *out);
bool body_int(struct api_request *request, const char *key, int64_t min, int64_t max, int64_t *out);
// *out borrows from the body. NUL characters are refused.
bool body_string(struct api_request *request, const char *key, const char **out);
// The value is this string.
bool body_is_word(const json_t *value, const char *word);
// The value asks for nothing: absent, null, false, or an empty text or list. An empty object asks
// for something: as a schema it stands for any JSON.
bool body_is_nothing(const json_t *value);
// "is 5, want a string"
bool body_wrong_type(struct api_request *request, const char *key, const json_t *value,
                     const char *want);
// The member that a sentence of the library is about: the one with whose name it begins, perhaps in
// quotes ("min_tokens is 5, ..."). `otherwise`: with none that was read.
const char *body_blamed(const struct api_request *request, const char *sentence,
                        const char *otherwise);
// Adds the name to those of ignored members.
bool body_ignore(struct api_request *request, const char *name); // true
// A tool that is no function, such as a web search: the server would have to run it. The model is
// not told of it, and the answer's head and the log name its type. A tool_choice that demands it
// finds no such tool. False: the options refuse what is unknown, and request->error says so.
bool body_leave_out_tool(struct api_request *request, const char *type);

// The member, or with `name` this part of it, changes nothing here: it is named like ignored ones.
// False: the options refuse what is unknown, and request->error says so.
bool body_leave_out(struct api_request *request, const char *member, const char *name);
// The same for the members of `object`, which is the member `member`, that are not in `known`. A
// few are named. What is no object is refused.
bool body_leave_out_others(struct api_request *request, const char *member, const json_t *object,
                           const char *const *known, size_t num_known);
// The same, where `is_known` says which names are known. `object` must be an object.
bool body_leave_out_unknown(struct api_request *request, const char *member, const json_t *object,
                            bool (*is_known)(const struct api_request *request, const char *name));

// Call it after an endpoint has read all that it reads. A member that no code has asked for is
// perhaps misspelled, and would change nothing: request->ignored gets the names of such members.
// There is no list of the known ones: body_get notes what it is asked for. Not counted: null, which
// is as good as absent, what clients send for other servers, and what changes no answer here.
// False: the options refuse unknown members, and request->error names the first.
bool body_check_unknown(struct api_request *request);

#endif
