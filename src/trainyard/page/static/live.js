/** The one connection to the server: subscriptions, frames, and whether what is shown is still true. */

import { SessionEnded } from './session.js';

const SILENCE = 20_000; // ms without a frame after which the connection counts as lost
const FIRST_PAUSE = 500,
  LONGEST_PAUSE = 5_000; // ms between two attempts to connect

/** base64url without padding */
function encode(/** @type {string} */ text) {
  return btoa(text).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}

/**
 * Events: `connected` (a new connection), `frame` (detail: the frame), `status` (the field has changed), `tick` (each
 * second while live).
 * `status`: connecting before the first frame, live, or stale.
 */
export class Live extends EventTarget {
  /** @type {'connecting'|'live'|'stale'} */
  status = 'connecting';
  /** Why it is not live, if the server told it. */
  reason = '';
  /** The last moment, in the server's Unix seconds, at which what is shown was true. */
  lastFrame = 0;
  /** @type {WebSocket|null} */
  #socket = null;
  #received = 0; // when the last frame came, or the connection was begun, by performance.now()
  #pause = FIRST_PAUSE;
  #retry = 0;
  /** @type {string[]} */
  #topics = ['jobs'];

  /** @param {import('./session.js').Session} session */
  constructor(session) {
    super();
    this.session = session;
  }

  start() {
    this.#connect();
    setInterval(() => this.#tick(), 1000);
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) {
        this.#stop('connecting');
      } else {
        this.#pause = FIRST_PAUSE;
        this.#connect();
      }
    });
  }

  /** Unix seconds of the server. While the connection is lost it stands still: nobody knows what happens then. */
  now() {
    return this.status === 'live' ? this.lastFrame + (performance.now() - this.#received) / 1000 : this.lastFrame;
  }

  /** Replaces the set of topics: jobs, job:UID, logs:UID:*, logs:UID:REPLICA. */
  subscribe(/** @type {string[]} */ topics) {
    const sorted = [...new Set(topics)].sort();
    if (sorted.join() === this.#topics.join()) return;
    this.#topics = sorted;
    this.#send();
  }

  #send() {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify({ subscribe: this.#topics }));
  }

  #connect() {
    clearTimeout(this.#retry);
    if (this.#socket || document.hidden) return;
    const address = new URL('v1/live', location.href);
    address.protocol = address.protocol === 'https:' ? 'wss:' : 'ws:';
    address.hash = '';
    const credential = `base64url.bearer.authorization.k8s.io.${encode(this.session.secret)}`;
    this.#received = performance.now();
    const socket = (this.#socket = new WebSocket(address, ['v1.trainyard.dev', credential]));
    socket.onopen = () => {
      this.dispatchEvent(new Event('connected'));
      this.#send();
    };
    socket.onmessage = (message) => this.#receive(JSON.parse(message.data));
    socket.onclose = () => {
      if (socket === this.#socket) this.#lost('');
    };
  }

  /** Closes the connection and stops the clocks. */
  #stop(/** @type {'connecting'|'stale'} */ status) {
    clearTimeout(this.#retry);
    this.lastFrame = this.now();
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    this.#setStatus(status);
  }

  /** @param {any} frame */
  #receive(frame) {
    if (frame.type === 'bye') return this.#lost(frame.reason ?? '');
    this.lastFrame = frame.now ?? this.now();
    this.#received = performance.now();
    if (this.status !== 'live') {
      this.#pause = FIRST_PAUSE;
      this.reason = '';
      this.#setStatus('live');
    }
    this.dispatchEvent(new CustomEvent('frame', { detail: frame }));
  }

  #lost(/** @type {string} */ reason) {
    this.reason = reason || this.reason;
    this.#stop(this.lastFrame ? 'stale' : 'connecting');
    this.#retry = setTimeout(() => this.#again(), this.#pause);
    this.#pause = Math.min(this.#pause * 1.6, LONGEST_PAUSE);
  }

  /** A browser does not tell why a WebSocket was refused, so a request asks first whether the session still counts. */
  async #again() {
    try {
      await this.session.check().catch((error) => {
        if (error instanceof SessionEnded) throw error;
      });
      this.#connect();
    } catch {
      /* the session has ended, and the page says so */
    }
  }

  #setStatus(/** @type {'connecting'|'live'|'stale'} */ status) {
    this.status = status;
    this.dispatchEvent(new Event('status'));
  }

  #tick() {
    if (this.#socket && performance.now() - this.#received > SILENCE) this.#lost('');
    if (this.status === 'live') this.dispatchEvent(new Event('tick'));
  }
}
