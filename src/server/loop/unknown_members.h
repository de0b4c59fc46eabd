/* Members of a request that no code has asked for. A misspelled one would else change nothing, and
 * nobody would notice. There is no list of the known ones: body_get notes what it is asked for. */
#ifndef SERVER_UNKNOWN_MEMBERS_H
#define SERVER_UNKNOWN_MEMBERS_H

#include <stdbool.h>

struct api_request;

// The body has `key`, and an endpoint reads it. `key` lives as long as the program.
void unknown_members_note_read(struct api_request *request, const char *key);
// Call it after an endpoint has read all that it reads. Fills request->ignored with the names of
// the members that nobody asked for. Not counted: null, which is as good as absent, what clients
// send for other servers, and what changes no answer here. False: the options refuse unknown
// members, and request->error names the first.
bool unknown_members_check(struct api_request *request);

#endif
