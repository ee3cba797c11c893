// Calls of the service. The browser shows its cookie by itself; the token is sent once, to sign in.

/** The answer's JSON; else an error with the service's own words, and its status (0: no answer). @returns {Promise<any>} */
export async function call(path, options = {}) {
  const answer = await fetch(path, options).catch((error) => {
    throw options.signal?.aborted ? error : Object.assign(new Error("the service does not answer"), { status: 0 });
  });
  if (answer.ok) return answer.json();
  const body = await answer.json().catch(() => ({})); // a proxy's error is no JSON
  throw Object.assign(new Error(body.error?.message ?? `HTTP ${answer.status}`), { status: answer.status });
}

/** Exchange a token or a code for a cookie. */
export const signIn = (scheme, word) => call("v1/session", { method: "POST", headers: { Authorization: `${scheme} ${word}` } });
export const signOut = () => call("v1/session", { method: "DELETE" });
/** Path of a call about a job or a group. */
export const pathOf = (id, rest) => `v1/${id.endsWith("/") ? "groups" : "jobs"}/${id.split("/").filter(Boolean).map(encodeURIComponent).join("/")}${rest}`;
/** Do what somebody has confirmed; no other site can send this header. */
export const act = (id, { method, path, body }) => call(pathOf(id, path), {
  method, body: method === "POST" ? JSON.stringify(body) : undefined, headers: { "X-Laxity-Action": "confirmed", "Content-Type": "application/json" },
});
