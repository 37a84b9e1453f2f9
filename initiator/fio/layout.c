/*
 * Prints the structure layout of a fio release, as a row of layouts.txt. In fio's source tree:
 *
 *   ./configure
 *   cc -include config-host.h -I. -Ios/linux -D_GNU_SOURCE -o layout PATH/TO/layout.c
 *   ./layout "$(git describe)"
 */
#include <stddef.h>
#include <stdio.h>
#include "fio.h"

#define OPS(member) printf(" %zu", offsetof(struct ioengine_ops, member))
#define UNIT(member) printf(" %zu", offsetof(struct io_u, member))
#define FILE_(member) printf(" %zu", offsetof(struct fio_file, member))

int main(int argc, char **argv)
{
	int flags = FIO_RAWIO | FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NODISKUTIL | FIO_NO_OFFLOAD;

	printf("%s %d %d %zu", argc > 1 ? argv[1] : "fio", FIO_IOOPS_VERSION, flags, sizeof(struct ioengine_ops));
	OPS(name); OPS(init); OPS(queue); OPS(commit); OPS(getevents); OPS(event); OPS(cleanup);
	OPS(open_file); OPS(close_file); OPS(invalidate); OPS(get_file_size); OPS(io_u_free);
	UNIT(ddir); UNIT(offset); UNIT(xfer_buf); UNIT(xfer_buflen); UNIT(resid); UNIT(error);
	FILE_(filetype); FILE_(file_name); FILE_(real_file_size);
	printf("\n");
	return 0;
}
