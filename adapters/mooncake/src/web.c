/* SPDX-License-Identifier: Apache-2.0 */
/* web.c: one HTTP request at a time, by libcurl, on a connection that is kept. */
#include "store.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

struct web {
    CURL *curl;
    uint64_t timeout_ms;
};

struct answer {
    char *text;
    size_t length, room;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool is_usable;

static void begin(void) {
    is_usable = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

struct web *web_open(uint64_t timeout_ms) {
    pthread_once(&once, begin);
    struct web *web = is_usable ? calloc(1, sizeof(*web)) : NULL;
    if (web == NULL)
        return NULL;
    web->timeout_ms = timeout_ms;
    web->curl = curl_easy_init();
    if (web->curl == NULL) {
        free(web);
        return NULL;
    }
    return web;
}

void web_close(struct web *web) {
    curl_easy_cleanup(web->curl);
    free(web);
}

char *web_escape(struct web *web, const char *text) {
    char *escaped = curl_easy_escape(web->curl, text, 0);
    char *copy = escaped != NULL ? strdup(escaped) : NULL;
    curl_free(escaped);
    return copy;
}

static size_t take(char *bytes, size_t size, size_t count, void *to) {
    struct answer *answer = to;
    size_t length = size * count;
    if (length > ANSWER_BYTES_MAX - answer->length)
        return 0;
    if (answer->length + length + 1 > answer->room) {
        size_t room = 2 * (answer->length + length + 1);
        char *text = realloc(answer->text, room);
        if (text == NULL)
            return 0;
        answer->text = text;
        answer->room = room;
    }
    memcpy(answer->text + answer->length, bytes, length);
    answer->length += length;
    answer->text[answer->length] = '\0';
    return length;
}

enum store_result web_call(struct web *web, const char *method, const char *url, const char *body,
                           long *status_out, char **answer_out, char *why) {
    CURL *curl = web->curl;
    char error[CURL_ERROR_SIZE] = "";
    struct answer answer = {NULL, 0, 0};
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    take((char[]){0}, 0, 0, &answer);
    curl_easy_reset(curl); /* the connection stays */
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)web->timeout_ms);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
    if (body != NULL)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    CURLcode rc =
        headers == NULL || answer.text == NULL ? CURLE_OUT_OF_MEMORY : curl_easy_perform(curl);
    curl_slist_free_all(headers);
    if (rc != CURLE_OK) {
        snprintf(why, STORE_WHY, "%.100s: %.120s", url,
                 error[0] != '\0' ? error : curl_easy_strerror(rc));
        free(answer.text);
        return STORE_AWAY;
    }
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, status_out);
    *answer_out = answer.text;
    return STORE_OK;
}
