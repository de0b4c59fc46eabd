/* One negated schema: shared by schema_negate.c and, for the keywords of arrays,
 * schema_negate_array.c. */
#ifndef STRUCTURED_SCHEMA_NEGATE_H
#define STRUCTURED_SCHEMA_NEGATE_H

#include "structured/schema/schema_internal.h"

struct negation {
    struct schema_reader *reader;
    const struct schema_work *work;
    const json_t *schema; // that is negated
    const struct schema_sink *sink;
    unsigned types; // of the schema: other values are in the alternative in which "type" fails
};

// Goes on with an alternative.
void negation_run(const struct negation *n, const struct schema_work *work);
// The work for values of these types only, of those that the schema's "type" allows.
struct schema_work negation_copy(const struct negation *n, unsigned types);
// The keyword cannot be negated, if values of these types are left.
void negation_refuse(const struct negation *n, unsigned types, const char *key);
// Runs one alternative with a clause for "properties" and "required". False: they have fewer than
// two ways to fail.
bool negation_clause(const struct negation *n);
// Runs the alternatives in which a keyword of arrays fails.
void negation_array(const struct negation *n, const char *key, const json_t *value);

#endif
