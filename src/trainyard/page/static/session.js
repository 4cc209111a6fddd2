/** The session: a one-time token of the address becomes a session that is kept in this browser for this origin. A tab
 * keeps its own, with its right to change jobs or not; a new tab has that of the newest link. */

const KEY = 'trainyard.session';

/** Why no request is possible any more. */
export class SessionEnded extends Error {}

/** An answer of the server that is no success. `message` is the sentence to show. */
export class RequestFailed extends Error {
  constructor(/** @type {number} */ status, /** @type {string} */ message) {
    super(message);
    this.status = status;
  }
}

export class Session {
  /** @type {string|null} */
  #secret = sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);
  /** Called once when the server does not accept the session any more. */
  onEnd = () => {};

  get secret() {
    return this.#secret ?? '';
  }

  /** Takes the token out of the address, before anything else can see it there, and exchanges it for a session. */
  async start() {
    const token = /^#token=(.*)$/.exec(location.hash)?.[1];
    if (token) {
      history.replaceState(null, '', `${location.pathname}${location.search}#/`);
      const response = await fetch('v1/session', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ token }),
      });
      if (response.ok) {
        this.#secret = (await response.json()).session;
        localStorage.setItem(KEY, this.secret);
        sessionStorage.setItem(KEY, this.secret);
      }
    }
    if (!this.#secret) this.#end();
  }

  #end() {
    if (localStorage.getItem(KEY) === this.#secret) localStorage.removeItem(KEY); // else that of a newer link
    sessionStorage.removeItem(KEY);
    this.#secret = null;
    this.onEnd();
    throw new SessionEnded();
  }

  /**
   * Sends a request. Raises SessionEnded, RequestFailed, or TypeError when there is no connection.
   * @param {string} path below v1/
   * @param {RequestInit} [options]
   * @returns {Promise<Response>}
   */
  async request(path, options = {}) {
    const headers = { ...options.headers, Authorization: `Bearer ${this.secret}` };
    const response = await fetch(`v1/${path}`, { ...options, headers });
    if (response.ok) return response;
    if (response.status === 401) this.#end();
    const answer = await response.json().catch(() => ({}));
    throw new RequestFailed(response.status, answer.error ?? `The server answered ${response.status}.`);
  }

  /** @param {string} path @param {any} value @returns {Promise<Response>} */
  post(path, value) {
    return this.request(path, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(value),
    });
  }

  /** Raises SessionEnded if the session does not count any more. */
  async check() {
    await this.post('tickets', { path: '' });
  }

  /** Downloads a whole file: a link of its own carries no header, so the server gives out a ticket for it. */
  async download(/** @type {string} */ path) {
    const response = await this.post('tickets', { path });
    const link = document.createElement('a');
    link.href = `v1/download/${encodeURIComponent((await response.json()).ticket)}`;
    link.download = '';
    document.body.append(link);
    link.click();
    link.remove();
  }
}
