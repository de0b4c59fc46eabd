/* Ctrl-C and SIGTERM. The first signal asks the run to stop and prints that to standard error. The
 * second ends the process at once. */
#ifndef CMD_INTERRUPT_H
#define CMD_INTERRUPT_H

#include <stdbool.h>

#include "nanovllm.h"

void interrupt_install(void);
// The same while a model is downloaded, until interrupt_remove: the text is that of a download.
void interrupt_install_download(void);
void interrupt_remove(void); // the signals have their default effect again
bool interrupt_requested(void);
extern const struct nvllm_interrupt interrupt_question; // the same question, for the library

#endif
