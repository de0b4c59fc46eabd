/* Ctrl-C and SIGTERM: the first asks the run to stop and says so on standard error, the second ends
 * the process at once. */
#ifndef CMD_INTERRUPT_H
#define CMD_INTERRUPT_H

#include <stdbool.h>

#include "nanovllm.h"

void interrupt_install(void);
bool interrupt_requested(void);
extern const struct nvllm_interrupt interrupt_question; // the same, for the library to ask

#endif
