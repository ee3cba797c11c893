// Calls of the service. The browser shows its cookie by itself; the token is sent once, to sign in.

/** The service's own words when it refuses; status 0: it did not answer. */
export class ServiceError extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** @param {string} path @param {RequestInit} options @returns {Promise<any>} */
export async function call(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ServiceError(0, "the service does not answer");
  }
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new ServiceError(answer.status, body.error?.message ?? `HTTP ${answer.status}`);
  return body;
}

/** Exchange a token or a code for a cookie. @param {"Bearer" | "Code"} scheme @param {string} word */
export function signIn(scheme, word) {
  return call("v1/session", { method: "POST", headers: { Authorization: `${scheme} ${word}` } });
}

export function signOut() {
  return call("v1/session", { method: "DELETE" });
}

/** Path of a call about a job. @param {string} id @param {string} rest */
export function jobPath(id, rest) {
  return `v1/jobs/${id.split("/").map(encodeURIComponent).join("/")}/${rest}`;
}
