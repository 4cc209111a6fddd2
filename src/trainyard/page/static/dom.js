/** Elements are made here, and text is only ever set as text: names, messages and log lines are written by others. */

/**
 * A new element. `on...` attributes are listeners; null, undefined and false leave an attribute out.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node|string|number|null|undefined)} children
 * @returns {any}
 */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  node.append(
    ...children
      .filter((child) => child !== null && child !== undefined)
      .map((child) => (child instanceof Node ? child : String(child))),
  );
  return node;
}

/** Sets the text of a node, unless it has that text: an unchanged node is neither laid out nor announced again. */
export function setText(/** @type {Node} */ node, /** @type {string|number} */ text) {
  if (node.textContent !== String(text)) node.textContent = String(text);
}

/** Sets an attribute unless it has that value; null removes it. */
export function setAttribute(/** @type {Element} */ node, /** @type {string} */ name, /** @type {any} */ value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
}

/**
 * Makes the children of `parent` those of `items`. An item that stays keeps its element, and with it the focus.
 * @template T
 * @param {Element} parent
 * @param {T[]} items
 * @param {(item: T, index: number) => string} keyOf
 * @param {(item: T) => HTMLElement} create
 * @param {(node: any, item: T, index: number) => void} [update]
 * @param {HTMLElement[]} [spare] elements that are not needed any more, for other items
 */
export function reconcile(parent, items, keyOf, create, update = () => {}, spare = undefined) {
  const previous = /** @type {any} */ (parent).childrenByKey ?? new Map();
  const next = new Map(items.map((item, index) => [keyOf(item, index), item]));
  for (const [key, node] of previous) {
    if (next.has(key)) continue;
    node.remove();
    spare?.push(node);
  }
  let position = parent.firstElementChild,
    index = 0;
  const nodes = new Map();
  for (const [key, item] of next) {
    const node = previous.get(key) ?? spare?.pop() ?? create(item);
    nodes.set(key, node);
    if (node === position) position = position?.nextElementSibling ?? null;
    else parent.insertBefore(node, position);
    update(node, item, index++);
  }
  /** @type {any} */ (parent).childrenByKey = nodes;
}

/**
 * `draw`, at most once a frame however often the returned function is called.
 * @param {() => void} draw
 */
export function oncePerFrame(draw) {
  let requested = false;
  return () => {
    if (requested) return;
    requested = true;
    requestAnimationFrame(() => {
      requested = false;
      draw();
    });
  };
}

/** A button that copies `text()`, and says so. */
export function copyButton(/** @type {() => string} */ text, label = 'Copy') {
  const button = element(
    'button',
    {
      type: 'button',
      class: 'quiet',
      onclick: async () => {
        try {
          await navigator.clipboard.writeText(text());
          button.textContent = 'Copied';
        } catch {
          button.textContent = 'Copy refused by the browser';
        }
        setTimeout(() => {
          button.textContent = label;
        }, 2000);
      },
    },
    label,
  );
  return button;
}

/** The mark and the word of a state; update it with `setState`. */
export function stateLabel() {
  return element('span', { class: 'state' }, element('i', { class: 'mark', 'aria-hidden': 'true' }), element('span'));
}

export function setState(/** @type {Element} */ node, /** @type {string} */ state, /** @type {string} */ tone) {
  setAttribute(node, 'data-tone', tone);
  setText(/** @type {Node} */ (node.lastChild), state || '-');
}
