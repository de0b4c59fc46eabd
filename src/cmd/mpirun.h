/* The command under mpirun: rank 0 runs it, the other processes work for rank 0's engines. */
#ifndef CMD_MPIRUN_H
#define CMD_MPIRUN_H

#include <stdbool.h>

// Whether mpirun, or srun, has started this process as one of several.
bool mpirun_is_there(void);
// Joins the others. True: this is rank 0, which goes on with the command. False: this was another
// rank, whose work is done, or an error was printed. The process must end with *exit_code.
bool mpirun_join(int *exit_code);
// Rank 0's last call: the others end.
void mpirun_leave(void);

#endif
