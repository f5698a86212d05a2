'use strict';
(() => {
  const root = document.documentElement;
  const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* a page from a file may have none */ } };
  const kept = (name) => { try { return localStorage.getItem(name); } catch { return null; } };

  // Light or dark: the system's choice until the reader has made one.
  const theme = document.getElementById('theme');
  const dark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches);
  const show = () => { theme.textContent = dark() ? 'Light' : 'Dark'; };
  if (['light', 'dark'].includes(kept('theme'))) root.dataset.theme = kept('theme');
  theme.hidden = false;
  theme.addEventListener('click', () => {
    root.dataset.theme = dark() ? 'light' : 'dark';
    keep('theme', root.dataset.theme);
    show();
  });
  show();

  // A chart's own title would cover the text shown at the pointer.
  for (const svg of document.querySelectorAll('svg.chart')) {
    const title = svg.querySelector(':scope > title');
    const description = svg.querySelector(':scope > desc');
    svg.setAttribute('aria-label', [title, description].map((part) => part.textContent).join('. '));
    svg.removeAttribute('aria-labelledby');
    title.remove();
  }

  // A link to a cell opens it.
  const open = () => {
    const found = location.hash && document.getElementById(location.hash.slice(1));
    if (found && found.tagName === 'DETAILS') { found.open = true; found.scrollIntoView(); }
  };
  addEventListener('hashchange', open);
  open();

  // The filter.
  const first = document.querySelector('.scenario');
  if (first) {
    const bar = document.createElement('form');
    bar.className = 'filter';
    bar.innerHTML = '<input type="search" placeholder="Only cells that contain …" aria-label="Only cells that contain">'
      + '<label><input type="checkbox"> only where polylogue is behind</label><button type="button">Open all</button>';
    first.before(bar);
    const [words, behind] = bar.querySelectorAll('input');
    const button = bar.querySelector('button');
    const shown = () => [...document.querySelectorAll('details.cell')].filter((cell) => !cell.hidden);
    const apply = () => {
      const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const cell of document.querySelectorAll('details.cell')) {
        cell.hidden = !wanted.every((word) => cell.dataset.name.includes(word)) || (behind.checked && cell.dataset.behind === '0');
      }
      for (const section of document.querySelectorAll('section.scenario')) section.hidden = !section.querySelector('details.cell:not([hidden])');
    };
    bar.addEventListener('submit', (event) => event.preventDefault());
    bar.addEventListener('input', apply);
    button.addEventListener('click', () => {
      const all = shown();
      const open = all.some((cell) => !cell.open);
      for (const cell of all) cell.open = open;
      button.textContent = open ? 'Close all' : 'Open all';
    });
  }

  // What the lines of time say under the pointer.
  const tip = document.createElement('div');
  tip.className = 'tip';
  tip.hidden = true;
  document.body.append(tip);
  const left = 44, right = 432;
  const put = (event, text) => {
    tip.textContent = text;
    tip.hidden = false;
    const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const y = event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 12 : event.clientY + 18;
    tip.style.left = Math.max(4, x) + 'px';
    tip.style.top = y + 'px';
  };
  for (const svg of document.querySelectorAll('svg.chart')) {
    const lines = [...svg.querySelectorAll('path[data-values]')];
    if (!lines.length) continue;
    const cross = document.createElementNS(svg.namespaceURI, 'line');
    cross.setAttribute('class', 'cross');
    cross.setAttribute('y1', 20);
    cross.setAttribute('y2', svg.viewBox.baseVal.height - 34);
    cross.style.display = 'none';
    svg.append(cross);
    const last = +lines[0].dataset.last;
    const boxes = lines.map((line) => line.getAttribute('data-panel'));
    svg.addEventListener('pointermove', (event) => {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      const second = Math.round(((point.x - left) / (right - left)) * last);
      if (second < 0 || second > last) { tip.hidden = true; cross.style.display = 'none'; return; }
      const x = left + (second / last) * (right - left);
      cross.style.display = '';
      cross.setAttribute('x1', x);
      cross.setAttribute('x2', x);
      const panel = Math.floor((point.y - +svg.querySelector('path[data-values]').dataset.top) / +lines[0].dataset.step);
      const values = lines.filter((line, at) => +boxes[at] === panel).map((line) => {
        const value = line.dataset.values.split(' ')[Math.floor(second / +line.dataset.every)];
        return value === undefined ? '' : line.dataset.name + '  ' + value + ' ' + line.dataset.unit;
      });
      put(event, ['second ' + second, ...values.filter(Boolean)].join('\n'));
    });
    svg.addEventListener('pointerleave', () => { tip.hidden = true; cross.style.display = 'none'; });
  }
})();
