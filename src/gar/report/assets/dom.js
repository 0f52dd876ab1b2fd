// Elements and definitions. Text from the data goes in as text nodes; nothing here reads HTML.

const report = JSON.parse(document.getElementById('report').textContent);

const SVG = 'http://www.w3.org/2000/svg';

// A function is a listener, `style` an object of properties (the policy forbids style attributes), null is left out.
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (name === 'style') for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
  return element;
}

function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

// ------------------------------------------------------------------------------------------------------ definitions

const tip = h('div', { class: 'tip', role: 'tooltip', id: 'tip', hidden: true });

function showTip(target, words) {
  tip.textContent = words;
  tip.hidden = false;
  const at = target.getBoundingClientRect();
  const left = Math.max(8, Math.min(at.left, document.documentElement.clientWidth - tip.offsetWidth - 8));
  const below = at.bottom + tip.offsetHeight + 12 < window.innerHeight;
  tip.style.setProperty('left', `${left + window.scrollX}px`);
  tip.style.setProperty('top', `${(below ? at.bottom + 6 : at.top - tip.offsetHeight - 6) + window.scrollY}px`);
}

function hideTip() {
  tip.hidden = true;
}

// A label with its definition, shown where it is pointed at or focused.
function term(label, key = label) {
  const words = report.definitions[key.toLowerCase().replace(/.*pass@\d+$/, 'pass@k')];
  if (!words) return label;
  const show = (event) => showTip(event.currentTarget, words);
  return h('span', { class: 'term', tabindex: 0, 'data-term': key, 'aria-describedby': 'tip',
    pointerenter: show, focus: show, click: show, pointerleave: hideTip, blur: hideTip }, label);
}

document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') hideTip();
});

// ------------------------------------------------------------------------------------------------------ large views

const large = h('dialog', { class: 'large', 'aria-label': 'Large view', click: (event) => { if (event.target === large) large.close(); } });

function openLarge(...content) {
  large.replaceChildren(h('button', { class: 'plain', click: () => large.close() }, 'Close'), ...content);
  large.showModal();
}
