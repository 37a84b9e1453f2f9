/* librados and librbd without a cluster: each operation completes at once, on the calling thread, and moves no
 * data. The measured cost of an image is therefore Cairn's own. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef void *handle;
typedef void (*callback)(handle completion, void *argument);

struct completion {
	callback call;
	void *argument;
	ptrdiff_t result;
	struct completion *next;
};

struct image_info {
	uint64_t size, object_bytes, objects;
	int order;
	char prefix[24];
	int64_t parent_pool;
	char parent_name[96];
};

enum { IMAGE_BYTES = 1 << 30, OBJECT_BYTES = 4 << 20, COMPLETIONS = 1024 };

static struct completion completions[COMPLETIONS], *unused;
static int thing, first = 1;

int rados_create(handle *cluster, const char *id) { *cluster = &thing; return 0; }
int rados_conf_read_file(handle cluster, const char *path) { return 0; }
int rados_conf_set(handle cluster, const char *option, const char *value) { return 0; }
int rados_connect(handle cluster) { return 0; }
void rados_shutdown(handle cluster) {}
int rados_cluster_fsid(handle cluster, char *text, size_t bytes) { strcpy(text, "none"); return 4; }
int rados_ioctx_create(handle cluster, const char *name, handle *pool) { *pool = &thing; return 0; }
void rados_ioctx_destroy(handle pool) {}
int64_t rados_ioctx_get_id(handle pool) { return 1; }
void rados_ioctx_set_namespace(handle pool, const char *name) {}
void rados_set_pool_full_try(handle pool) {}
int rados_watch3(handle pool, const char *object, uint64_t *cookie, handle seen, handle lost, uint32_t s, void *a) { return 0; }
int rados_unwatch2(handle pool, uint64_t cookie) { return 0; }
int rados_watch_flush(handle cluster) { return 0; }
int rados_notify_ack(handle pool, const char *object, uint64_t id, uint64_t cookie, const char *text, int bytes) { return 0; }

int rbd_open(handle pool, const char *name, handle *image, const char *snapshot) { *image = &thing; return 0; }
int rbd_open_read_only(handle pool, const char *name, handle *image, const char *snapshot) { *image = &thing; return 0; }
int rbd_close(handle image) { return 0; }
int rbd_stat(handle image, struct image_info *info, size_t bytes)
{
	info->size = IMAGE_BYTES;
	info->object_bytes = OBJECT_BYTES;
	return 0;
}
int rbd_get_size(handle image, uint64_t *bytes) { *bytes = IMAGE_BYTES; return 0; }
int rbd_get_features(handle image, uint64_t *features) { *features = 1 << 2; return 0; }
int rbd_get_stripe_unit(handle image, uint64_t *bytes) { *bytes = OBJECT_BYTES; return 0; }
int rbd_get_stripe_count(handle image, uint64_t *count) { *count = 1; return 0; }
int rbd_get_id(handle image, char *text, size_t bytes) { strcpy(text, "1"); return 0; }
int rbd_update_watch(handle image, uint64_t *watch, handle seen, void *argument) { return 0; }
int rbd_update_unwatch(handle image, uint64_t watch) { return 0; }
int rbd_lock_acquire(handle image, int mode) { return 0; }
int rbd_flush(handle image) { return 0; }

int rbd_aio_create_completion(void *argument, callback call, handle *completion)
{
	struct completion *made = unused;

	if (first) {
		first = 0;
		for (int i = 0; i + 1 < COMPLETIONS; i++)
			completions[i].next = &completions[i + 1];
		made = completions;
	}
	unused = made->next;
	made->call = call;
	made->argument = argument;
	*completion = made;
	return 0;
}

ptrdiff_t rbd_aio_get_return_value(handle completion) { return ((struct completion *)completion)->result; }

void rbd_aio_release(handle completion)
{
	struct completion *gone = completion;

	gone->next = unused;
	unused = gone;
}

static int end(handle completion, ptrdiff_t result)
{
	struct completion *ended = completion;

	ended->result = result;
	ended->call(ended, ended->argument);
	return 0;
}

int rbd_aio_read(handle image, uint64_t at, size_t bytes, char *to, handle completion) { return end(completion, bytes); }
int rbd_aio_write(handle image, uint64_t at, size_t bytes, const char *from, handle completion) { return end(completion, 0); }
int rbd_aio_discard(handle image, uint64_t at, uint64_t bytes, handle completion) { return end(completion, 0); }
int rbd_aio_write_zeroes(handle image, uint64_t at, size_t bytes, handle completion, int flags, int op) { return end(completion, 0); }
int rbd_aio_flush(handle image, handle completion) { return end(completion, 0); }
