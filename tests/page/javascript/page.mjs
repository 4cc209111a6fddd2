/**
 * The smallest stand-in of a browser in which the modules of the page can be loaded: a tree of elements, events that
 * bubble, and what only a browser measures, which a test sets. A test file imports this module before those of the page.
 *
 * It draws nothing, lays nothing out and parses no markup: what needs that is tested in tests/page/browser.
 */

export class Node extends EventTarget {
  parentNode = null;
  childNodes = [];

  get parentElement() {
    return this.parentNode instanceof Element ? this.parentNode : null;
  }
  get isConnected() {
    return this.parentNode?.isConnected ?? false;
  }
  get firstChild() {
    return this.childNodes[0] ?? null;
  }
  get lastChild() {
    return this.childNodes.at(-1) ?? null;
  }
  get textContent() {
    return this.childNodes.map((node) => node.textContent).join('');
  }
  set textContent(text) {
    this.replaceChildren(...(text === '' ? [] : [text]));
  }

  contains(node) {
    return node === this || this.childNodes.some((child) => child.contains(node));
  }

  insertBefore(node, position) {
    node.remove();
    const index = position === null ? this.childNodes.length : this.childNodes.indexOf(position);
    if (index < 0) throw new Error('NotFoundError: the node before which to insert is no child');
    this.childNodes.splice(index, 0, node);
    node.parentNode = this;
    if (this.isConnected) descendants(node).forEach((entry) => entry.connectedCallback?.());
  }

  append(...nodes) {
    for (const node of nodes) this.insertBefore(asNode(node), null);
  }

  after(node) {
    this.parentNode.insertBefore(node, this.parentNode.childNodes[this.parentNode.childNodes.indexOf(this) + 1] ?? null);
  }

  remove() {
    if (!this.parentNode) return;
    const wasConnected = this.isConnected;
    this.parentNode.childNodes.splice(this.parentNode.childNodes.indexOf(this), 1);
    this.parentNode = null;
    if (wasConnected) descendants(this).forEach((entry) => entry.disconnectedCallback?.());
  }

  replaceChildren(...nodes) {
    for (const child of [...this.childNodes]) child.remove();
    this.append(...nodes);
  }

  /** An event reaches the ancestors, too, with the node at which it began as its target. */
  dispatchEvent(event) {
    if (!event.bubbles) return super.dispatchEvent(event);
    Object.defineProperty(event, 'target', { value: this });
    for (let node = this; node && !event.cancelBubble; node = node.parentNode) {
      Object.defineProperty(event, 'currentTarget', { value: node, configurable: true });
      EventTarget.prototype.dispatchEvent.call(node, event);
    }
    return !event.defaultPrevented;
  }
}

class Text extends Node {
  constructor(data) {
    super();
    this.data = data;
  }
  get textContent() {
    return this.data;
  }
}

const asNode = (value) => (value instanceof Node ? value : new Text(String(value)));
const descendants = (node) => [node, ...node.childNodes.flatMap(descendants)];

/** Whether an element is what a selector without combinators names: a tag, classes, attributes, one `:not(...)`. */
function isCompound(element, compound) {
  const [, tag, rest] = /^([\w-]*)(.*)$/.exec(compound);
  if (tag && element.tagName !== tag.toUpperCase()) return false;
  return [...rest.matchAll(/\.([\w-]+)|\[([\w-]+)(?:=([\w-]+))?\]|:not\(([^)]+)\)/g)].every(([, name, attribute, value, not]) => {
    if (name) return element.classList.contains(name);
    if (not) return !isCompound(element, not);
    return value === undefined ? element.hasAttribute(attribute) : element.getAttribute(attribute) === value;
  });
}

class Element extends Node {
  attributes = new Map();
  style = {};
  clientWidth = 0;
  clientHeight = 0;
  offsetHeight = 0;
  scrollTop = 0;
  rect = { top: 0, height: 0 };
  #value;

  constructor(tag = tags.get(new.target)) {
    super();
    this.tagName = tag.toUpperCase();
  }

  setAttribute(name, value) {
    this.attributes.set(name, String(value));
  }
  getAttribute(name) {
    return this.attributes.get(name) ?? null;
  }
  hasAttribute(name) {
    return this.attributes.has(name);
  }
  removeAttribute(name) {
    this.attributes.delete(name);
  }

  get id() {
    return this.getAttribute('id') ?? '';
  }
  get className() {
    return this.getAttribute('class') ?? '';
  }
  set className(value) {
    this.setAttribute('class', value);
  }
  get classList() {
    const names = new Set(this.className.split(' ').filter(Boolean));
    return {
      contains: (name) => names.has(name),
      toggle: (name, force) => {
        names[force ? 'add' : 'delete'](name);
        this.className = [...names].join(' ');
      },
    };
  }
  get hidden() {
    return this.hasAttribute('hidden');
  }
  set hidden(value) {
    if (value) this.setAttribute('hidden', '');
    else this.removeAttribute('hidden');
  }
  get value() {
    return this.#value ?? this.getAttribute('value') ?? '';
  }
  set value(value) {
    this.#value = String(value);
  }
  get dataset() {
    const name = (key) => `data-${key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
    return new Proxy(this, {
      get: (_, key) => this.getAttribute(name(key)) ?? undefined,
      set: (_, key, value) => (this.setAttribute(name(key), value), true),
    });
  }

  get children() {
    return this.childNodes.filter((node) => node instanceof Element);
  }
  get firstElementChild() {
    return this.childNodes.find((node) => node instanceof Element) ?? null;
  }
  get nextElementSibling() {
    const siblings = this.parentNode?.childNodes ?? [];
    let index = siblings.indexOf(this) + 1;
    while (index < siblings.length && !(siblings[index] instanceof Element)) index++;
    return siblings[index] ?? null;
  }

  matches(selector) {
    return selector.split(',').some((part) => {
      const compounds = part.trim().split(/\s+/);
      if (!isCompound(this, compounds.pop())) return false;
      let ancestor = this.parentElement;
      for (; compounds.length && ancestor; ancestor = ancestor.parentElement)
        if (isCompound(ancestor, compounds.at(-1))) compounds.pop();
      return !compounds.length;
    });
  }
  closest(selector) {
    return this.matches(selector) ? this : (this.parentElement?.closest(selector) ?? null);
  }
  querySelectorAll(selector) {
    return descendants(this).filter((node) => node !== this && node instanceof Element && node.matches(selector));
  }
  querySelector(selector) {
    return this.querySelectorAll(selector)[0] ?? null;
  }

  getBoundingClientRect() {
    return this.rect;
  }
  focus() {
    document.activeElement = this;
  }
  blur() {
    document.activeElement = document.body;
  }
  select() {
    this.focus();
  }
  click() {
    this.dispatchEvent(new Event('click', { bubbles: true, cancelable: true }));
  }
  /** Of a dialog. */
  showModal() {
    this.setAttribute('open', '');
  }
  close() {
    this.removeAttribute('open');
    this.dispatchEvent(new Event('close'));
  }
  /** Of a canvas: a context that notes what is called, with its fillStyle. */
  getContext() {
    return (this.context ??= recordingContext());
  }
}

class HTMLElement extends Element {}

/** A context of a canvas. `calls`: what was drawn since `calls` was emptied, as [method, fillStyle, ...arguments]. */
export function recordingContext() {
  const calls = [];
  return new Proxy({ calls, measureText: (text) => ({ width: 7 * text.length }) }, {
    get: (context, name) =>
      name in context ? context[name] : (...values) => void calls.push([name, context.fillStyle, ...values]),
  });
}

const tags = new Map(), custom = new Map();

class Document extends Node {
  documentElement = new HTMLElement('html');
  head = new HTMLElement('head');
  body = new HTMLElement('body');
  activeElement = this.body;
  hidden = false;
  title = '';

  constructor() {
    super();
    this.append(this.documentElement);
    this.documentElement.append(this.head, this.body);
  }
  get isConnected() {
    return true;
  }
  createElement(tag) {
    return custom.has(tag) ? new (custom.get(tag))() : new HTMLElement(tag);
  }
  createElementNS(namespace, tag) {
    return new Element(tag);
  }
  querySelector(selector) {
    return this.documentElement.querySelector(selector);
  }
}

class Storage {
  #values = new Map();
  getItem = (key) => this.#values.get(key) ?? null;
  setItem = (key, value) => void this.#values.set(key, String(value));
  removeItem = (key) => void this.#values.delete(key);
  clear = () => this.#values.clear();
}

/** An observer of sizes or of what is seen. `report(node, entry)` calls all that observe the node. */
class Observer {
  static all = new Set();
  nodes = new Set();
  constructor(callback) {
    this.callback = callback;
  }
  observe(node) {
    this.nodes.add(node);
    Observer.all.add(this);
  }
  disconnect() {
    this.nodes.clear();
    Observer.all.delete(this);
  }
}
class ResizeObserver extends Observer {}
class IntersectionObserver extends Observer {}

/** Tells the observers that the element has that width. */
export function resize(node, width) {
  node.clientWidth = width;
  for (const observer of [...Observer.all])
    if (observer instanceof ResizeObserver && observer.nodes.has(node)) observer.callback([{ contentRect: { width } }]);
}

/** Tells the observers that the element is seen, or not any more. */
export function see(node, isIntersecting = true) {
  for (const observer of [...Observer.all])
    if (observer instanceof IntersectionObserver && observer.nodes.has(node)) observer.callback([{ isIntersecting }]);
}

let frames = [];
/** Runs what was asked for the next frame. */
export function nextFrame() {
  const due = frames;
  frames = [];
  due.forEach((draw) => draw());
}

const { setImmediate } = globalThis;
/** Waits until nothing is left to do but what waits for timers. */
export const settled = () => new Promise((resolve) => setImmediate(resolve));

/** Time that passes only when a test says so. It replaces the timers and performance.now(), in milliseconds. */
export const clock = {
  now: 0,
  timers: new Map(),
  number: 0,
  start(callback, delay, period) {
    this.timers.set(++this.number, { callback, at: this.now + delay, period });
    return this.number;
  },
  install() {
    globalThis.setTimeout = (callback, delay) => this.start(callback, delay, 0);
    globalThis.setInterval = (callback, delay) => this.start(callback, delay, delay);
    globalThis.clearTimeout = globalThis.clearInterval = (number) => void this.timers.delete(number);
    Object.defineProperty(performance, 'now', { value: () => this.now });
  },
  /** Lets time pass, and what is due happen in its order, with all that follows from it. */
  async pass(milliseconds) {
    const end = this.now + milliseconds;
    await settled();
    for (;;) {
      const [number, timer] = [...this.timers].sort(([, a], [, b]) => a.at - b.at)[0] ?? [0, null];
      if (!timer || timer.at > end) break;
      this.now = timer.at;
      if (timer.period) timer.at += timer.period;
      else this.timers.delete(number);
      timer.callback();
      await settled();
    }
    this.now = end;
  },
};

/** A key that is pressed at an element. */
export function press(node, key, options = {}) {
  const event = Object.assign(new Event('keydown', { bubbles: true, cancelable: true }), { key, ...options });
  node.dispatchEvent(event);
  return event;
}

/** An event of the pointer at a place of an element, in CSS pixels. */
export const pointer = (type, offsetX, offsetY) => Object.assign(new Event(type), { offsetX, offsetY });

/** All text of a kind of element, in the order of the document. */
export const texts = (node, selector) => node.querySelectorAll(selector).map((entry) => entry.textContent);

const page = new EventTarget();
/** The media queries of the page, by their text: their theme changes when a test dispatches `change`. */
export const media = new Map();

Object.assign(globalThis, {
  window: globalThis,
  Node,
  Element,
  HTMLElement,
  ResizeObserver,
  IntersectionObserver,
  CustomEvent:
    globalThis.CustomEvent ?? // no global of Node 18
    class CustomEvent extends Event {
      constructor(type, options = {}) {
        super(type, options);
        this.detail = options.detail ?? null;
      }
    },
  document: new Document(),
  customElements: {
    define(tag, constructor) {
      tags.set(constructor, tag);
      custom.set(tag, constructor);
    },
  },
  location: { href: 'https://host:8443/ui/?x=1#/', pathname: '/ui/', search: '?x=1', hash: '#/' },
  history: { replaceState: (state, title, address) => (location.hash = address.slice(address.indexOf('#'))) },
  matchMedia: (query) => media.set(query, Object.assign(new EventTarget(), { matches: false })).get(query),
  getComputedStyle: (node) => ({ color: 'black', getPropertyValue: (name) => ` ${name} of ${node.tagName} ` }),
  requestAnimationFrame: (callback) => frames.push(callback),
  addEventListener: page.addEventListener.bind(page),
  dispatchEvent: page.dispatchEvent.bind(page),
  getSelection: () => '',
  devicePixelRatio: 2,
  innerHeight: 600,
  scrollY: 0,
  scrollBy: (x, y) => (scrollY += y),
  scrollTo: (x, y) => (scrollY = y),
});
for (const [name, value] of Object.entries({ localStorage: new Storage(), sessionStorage: new Storage() }))
  Object.defineProperty(globalThis, name, { value, configurable: true }); // getters of newer versions of node
