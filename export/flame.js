"use strict";
(() => {
  const svg = document.documentElement;
  const margin = Number(svg.dataset.margin), char = Number(svg.dataset.char);
  const detail = document.getElementById("detail");
  const frames = [...document.querySelectorAll(".f")].map((g) => {
    const title = g.querySelector("title").textContent, name = title.split("\n")[0];
    return {
      g, title, name, brief: name.slice(Number(g.dataset.brief)), rect: g.querySelector("rect"), text: g.querySelector("text"),
      x: Number(g.dataset.x), w: Number(g.dataset.w), depth: Number(g.dataset.d),
    };
  });
  const byElement = new Map(frames.map((f) => [f.g, f]));
  const root = frames[0];
  // Widths are rounded to nine digits: fractions are compared with that slack.
  const slack = 2e-9;
  let zoomed = root, focused = root;

  // Frames keep the height that they were drawn at; x and width follow the zoom.
  function layout() {
    if (!root) return;
    const inner = svg.viewBox.baseVal.width - 2 * margin;
    for (const f of frames) {
      const left = Math.max(f.x, zoomed.x), right = Math.min(f.x + f.w, zoomed.x + zoomed.w);
      const shown = right - left > slack || f === zoomed;
      f.g.style.display = shown ? "" : "none";
      if (!shown) continue;
      f.g.classList.toggle("above", f.depth < zoomed.depth);
      const x = margin + (left - zoomed.x) / zoomed.w * inner, w = (right - left) / zoomed.w * inner;
      f.rect.setAttribute("x", x);
      f.rect.setAttribute("width", w - Math.min(0.8, 0.15 * w));
      f.text.setAttribute("x", x);
      f.text.textContent = fit(f.name, f.brief, w);
    }
    reset.style.display = zoomed === root ? "none" : "";
  }

  function fit(name, brief, w) {
    const n = Math.floor((w - 6) / char);
    for (const text of [name, brief]) if ([...text].length <= n) return text;
    return n < 5 ? "" : [...brief].slice(0, n - 3).join("") + "...";
  }

  function zoom(f) {
    zoomed = f;
    layout();
    show(f);
  }

  function show(f) {
    detail.textContent = f ? f.title.split("\n").slice(0, 2).join(": ") : "";
  }

  // One frame is in the tab order; arrow keys move it.
  function focus(f) {
    if (!f) return;
    focused.g.removeAttribute("tabindex");
    focused = f;
    f.g.setAttribute("tabindex", "0");
    f.g.focus({ preventScroll: false });
    show(f);
  }

  const inside = (a, b) => a.x >= b.x - slack && a.x + a.w <= b.x + b.w + slack;
  const visible = (f) => f.g.style.display !== "none";
  function neighbour(f, key) {
    const row = (d) => frames.filter((o) => o.depth === d && visible(o));
    switch (key) {
      case "ArrowUp": return row(f.depth + 1).filter((o) => inside(o, f)).sort((a, b) => b.w - a.w)[0];
      case "ArrowDown": return row(f.depth - 1).find((o) => inside(f, o));
      case "ArrowLeft": return row(f.depth).filter((o) => o.x < f.x).pop();
      case "ArrowRight": return row(f.depth).find((o) => o.x > f.x);
      case "Home": return root;
    }
  }

  // Time under any match: nested matches count once.
  function search(pattern) {
    let test = null;
    input.classList.remove("wrong");
    if (pattern) {
      try {
        test = new RegExp(pattern, "i");
      } catch {
        input.classList.add("wrong");
        test = { test: (s) => s.toLowerCase().includes(pattern.toLowerCase()) };
      }
    }
    clear.style.display = pattern ? "" : "none";
    let matched = 0, until = -1;
    for (const f of frames) {
      const found = test !== null && test.test(f.name);
      f.g.classList.toggle("found", found);
      if (found && f.x > until - slack) {
        matched += f.w;
        until = f.x + f.w;
      }
    }
    svg.classList.toggle("searching", test !== null);
    result.textContent = test === null ? "" : "matched " + percent(matched);
  }

  function percent(share) {
    const p = 100 * share;
    if (p === 0 || p >= 99.95) return p.toFixed(0) + " %";
    return p < 0.1 ? "<0.1 %" : p.toFixed(1) + " %";
  }

  function element(name, attributes, parent) {
    const e = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    parent.appendChild(e);
    return e;
  }

  function button(label, act) {
    const g = element("g", { class: "tool", tabindex: "0", role: "button" }, tools);
    element("text", { y: 86, "text-anchor": "end" }, g).textContent = label;
    g.addEventListener("click", act);
    return g;
  }

  // Tools exist only where scripts run; they stand at the right edge.
  const tools = document.getElementById("tools");
  const result = element("text", { y: 65, "text-anchor": "end", class: "note" }, tools);
  const box = element("foreignObject", { y: 51, width: 220, height: 24 }, tools);
  const input = document.createElementNS("http://www.w3.org/1999/xhtml", "input");
  input.setAttribute("type", "text");
  input.setAttribute("placeholder", "search (Ctrl-F), a regexp");
  input.setAttribute("aria-label", "search frames by regular expression");
  box.appendChild(input);
  const reset = button("reset zoom (Esc)", () => zoom(root));
  const clear = button("clear search", () => setSearch(""));

  function setSearch(pattern) {
    input.value = pattern;
    search(pattern);
  }

  function resize() {
    const w = Math.max(640, window.innerWidth - 2);
    const h = svg.viewBox.baseVal.height;
    svg.setAttribute("width", w);
    svg.setAttribute("viewBox", `0 0 ${w} ${h}`);
    const right = w - margin;
    box.setAttribute("x", right - 220);
    result.setAttribute("x", right - 230);
    clear.firstChild.setAttribute("x", right);
    reset.firstChild.setAttribute("x", right - 130);
    layout();
  }

  svg.addEventListener("click", (e) => {
    const f = byElement.get(e.target.closest(".f")), key = e.target.closest(".key");
    if (f) {
      zoom(f);
      focus(f);
    } else if (key) {
      setSearch(input.value === key.dataset.search ? "" : key.dataset.search);
    }
  });
  svg.addEventListener("mouseover", (e) => show(byElement.get(e.target.closest(".f")) || null));
  input.addEventListener("input", () => search(input.value));
  window.addEventListener("keydown", (e) => {
    if (((e.ctrlKey || e.metaKey) && e.key === "f") || e.key === "F3" || (e.key === "/" && e.target !== input)) {
      e.preventDefault();
      input.focus();
      input.select();
    } else if (e.key === "Escape") {
      if (input.value) setSearch("");
      else if (root) zoom(root);
      input.blur();
    } else if (e.target !== input && e.key === "Enter") {
      const pressed = e.target.closest(".f, .key, .tool");
      if (pressed) pressed.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    } else if (e.target !== input && root && neighbour(focused, e.key)) {
      e.preventDefault();
      focus(neighbour(focused, e.key));
    }
  });
  window.addEventListener("resize", resize);
  if (root) root.g.setAttribute("tabindex", "0");
  else tools.style.display = "none";
  search("");
  resize();
})();
