/* Names of this machine itself, in the fields Origin and Host: what a page of another site cannot
 * have. */
#ifndef SERVER_ORIGIN_H
#define SERVER_ORIGIN_H

#include <stdbool.h>
#include <stddef.h>

// "http://localhost:3000": whether it is this machine's.
bool origin_is_loopback(const char *origin);
// The name in a Host field, without its port. Returns its length; *name points into `host`.
size_t host_name(const char *host, const char **name);
// localhost, 127.x.y.z, ::1 (with or without brackets).
bool host_is_loopback(const char *name, size_t len);

#endif
