/* diagnose.h: why an address did not work, for a person. weir says WEIR_EADDRESS or
 * WEIR_ECONNECT; what the system has to say of the same address is asked here, afterwards. */
#ifndef TOOL_DIAGNOSE_H
#define TOOL_DIAGNOSE_H

#define DIAGNOSIS_MAX 160

/* Each writes a few words: "Address already in use", "not HOST:PORT". */
void diagnose_listen(const char *address, char why_out[DIAGNOSIS_MAX]);
void diagnose_dial(const char *address, char why_out[DIAGNOSIS_MAX]);

#endif
