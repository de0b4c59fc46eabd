/* Members of a request that no code has asked for. A misspelled one would else change nothing, and
 * nobody would notice. There is no list of the known ones: body_get notes what it is asked for. */
#ifndef SERVER_UNKNOWN_MEMBERS_H
#define SERVER_UNKNOWN_MEMBERS_H

#include <stdbool.h>

struct call;

// The body has `key`, and an endpoint reads it. `key` lives as long as the program.
void unknown_members_note_read(struct call *call, const char *key);
// After an endpoint has read all that it reads: fills call->ignored with the names of the members
// that nobody asked for. null is as good as absent, and what clients send for other servers, and
// what changes no answer here, is not counted. False: the options refuse them, and the call's error
// names the first.
bool unknown_members_check(struct call *call);

#endif
