// Draws the record of one event (see pairton.report.record) and steps through its frames. All text goes through
// textContent or attributes, never through markup.
"use strict";
const pairtonDisplay = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const INK = "#1b1f24", SOFT = "#57606a", NO_EDGE = "#d3d7dd";
  const MASKED = 2;

  function make(parent, name, attributes = {}, text) {
    const svg = parent instanceof SVGElement || name === "svg";
    const node = svg ? document.createElementNS(SVG, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    parent.appendChild(node);
    return node;
  }

  const percent = p => (p === null || p === undefined ? "" : p < 0.0005 ? "< 0.1 %" : `${(100 * p).toFixed(1)} %`);
  const verdict = right => (right === true ? "✓ right" : right === false ? "✗ wrong" : "");
  const sigmoid = x => 1 / (1 + Math.exp(-x));

  function mix(colour, share) {
    const part = k => Math.round(parseInt(colour.slice(k, k + 2), 16) * share + 255 * (1 - share));
    return `rgb(${part(1)}, ${part(3)}, ${part(5)})`;
  }

  function hull(points) { // Andrew's monotone chain
    const sorted = [...points].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const turn = (o, a, b) => (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0]);
    const half = list => {
      const chain = [];
      for (const p of list) {
        while (chain.length > 1 && turn(chain[chain.length - 2], chain[chain.length - 1], p) <= 0) chain.pop();
        chain.push(p);
      }
      return chain.slice(0, -1);
    };
    return [...half(sorted), ...half(sorted.reverse())];
  }

  // -- the eta-phi plane ----------------------------------------------------------------------------------

  const WIDE = { width: 560, height: 480, left: 50, right: 8, top: 8, bottom: 44 };
  const NARROW = { width: 370, height: 400, left: 46, right: 6, top: 6, bottom: 42 };
  let FRAME = WIDE; // of the plane that is being drawn
  const BEYOND = Math.PI + 0.35; // phi is shown a little beyond π, so that no object is cut
  let planes = 0; // ids of clip paths must differ within a page

  function plane(svg, record, particles, options = {}) {
    const small = options.small === true;
    FRAME = !small && svg.clientWidth > 0 && svg.clientWidth < 440 ? NARROW : WIDE;
    const { width, height, left, right, top, bottom } = FRAME;
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const reach = Math.max(2.5, ...record.objects.map(jet => Math.abs(jet.eta) + 0.3));
    const x = eta => left + ((eta + reach) / (2 * reach)) * (width - left - right);
    const y = phi => top + ((BEYOND - phi) / (2 * BEYOND)) * (height - top - bottom);
    const clip = `pd-clip-${planes++}`;
    make(make(make(svg, "defs"), "clipPath", { id: clip }), "rect",
      { x: left, y: top, width: width - left - right, height: height - top - bottom });
    axes(svg, reach, x, y, small);
    const body = make(svg, "g", { "clip-path": `url(#${clip})` });
    const colours = Object.fromEntries(record.types.map(type => [type.name, type]));
    const ordered = [...particles].sort((a, b) => b.objects.length - a.objects.length);
    for (const shown of ordered) particle(body, record, colours[shown.type], shown, x, y);
    if (options.truth) for (const shown of options.truth) missed(body, record, shown, x, y);
    const above = [...record.objects].sort((a, b) => a.used - b.used);  // used ones on top
    for (const jet of above) {
      for (const turn of turns) if (turn && Math.abs(jet.phi + turn) < BEYOND) drawObject(body, record, { ...jet, phi: jet.phi + turn, used: false, again: true }, x, y, small);
      drawObject(svg, record, jet, x, y, small);
    }
    if (small) return;
    const taken = record.objects.map(jet => kindOf(record, jet).transverse
      ? { x: left + arrowLength(jet) / 2, y: y(jet.phi) - 6, w: Math.max(arrowLength(jet), 80) / 2, h: 14 }
      : { x: x(jet.eta), y: y(jet.phi), w: extent(record, jet), h: extent(record, jet) });
    names(svg, record, ordered, colours, x, y, taken);
    if (options.labels) labels(svg, record, x, y, taken);
  }

  function axes(svg, reach, x, y, small) {
    const { width, height, left, right, top, bottom } = FRAME;
    const style = { "font-size": small ? 24 : 14, "text-anchor": "middle" };
    for (let eta = -Math.floor(reach); eta <= reach; eta++) {
      make(svg, "line", { x1: x(eta), x2: x(eta), y1: top, y2: height - bottom, stroke: "#eceff2" });
      if (!small) make(svg, "text", { x: x(eta), y: height - bottom + 17, ...style }, String(eta).replace("-", "−"));
    }
    const ticks = [["−π", -1], ["−π/2", -0.5], ["0", 0], ["π/2", 0.5], ["π", 1]];
    for (const [text, at] of ticks) {
      const here = y(at * Math.PI);
      make(svg, "line", { x1: left, x2: width - right, y1: here, y2: here, stroke: Math.abs(at) === 1 ? "#b6bec7" : "#eceff2" });
      if (!small) make(svg, "text", { x: left - 6, y: here + 5, "font-size": 14, "text-anchor": "end" }, text);
    }
    make(svg, "rect", { x: left, y: top, width: width - left - right, height: height - top - bottom, fill: "none", stroke: INK });
    if (small) return;
    make(svg, "text", { x: (left + width - right) / 2, y: height - 6, "font-size": 15, "text-anchor": "middle" }, "η");
    make(svg, "text", { x: 12, y: (top + height - bottom) / 2 + 40, "font-size": 15, "text-anchor": "middle" }, "φ");
  }

  // phi of some objects without a jump between them: as seen from their mean direction
  function unwrapped(jets) {
    const mean = Math.atan2(jets.reduce((s, j) => s + Math.sin(j.phi), 0), jets.reduce((s, j) => s + Math.cos(j.phi), 0));
    const turn = 2 * Math.PI;
    return jets.map(jet => [jet.eta, mean + (((jet.phi - mean + Math.PI) % turn) + turn) % turn - Math.PI]);
  }

  const turns = [-2 * Math.PI, 0, 2 * Math.PI]; // copies, so that an edge may leave at π and return at −π

  function particle(body, record, type, shown, x, y) {
    const points = unwrapped(shown.objects.map(k => record.objects[k]));
    const group = make(body, "g", { "class": "pd-particle", "data-type": shown.type, "data-objects": shown.objects.join(" ") });
    const fresh = shown.fresh === true;
    for (const turn of turns) {
      const place = points.map(([eta, phi]) => [x(eta), y(phi + turn)]);
      if (place.length > 2) {
        const path = hull(place).map(p => p.join(",")).join(" ");
        make(group, "polygon", { points: path, fill: type.colour, "fill-opacity": shown.preview ? 0.04 : 0.13, stroke: "none" });
      }
      for (const [i, j] of record.edges[shown.type]) {
        make(group, "line", {
          x1: place[i][0], y1: place[i][1], x2: place[j][0], y2: place[j][1], stroke: type.colour,
          "stroke-width": fresh ? 6 : type.height ? 3.5 : 4.5, "stroke-linecap": "round",
          ...(shown.preview ? { "stroke-dasharray": "1 7" } : type.height ? { "stroke-dasharray": "9 7" } : {}),
        });
      }
    }
  }

  function missed(body, record, shown, x, y) {
    const points = unwrapped(shown.objects.map(k => record.objects[k]));
    for (const turn of turns) for (const [i, j] of record.edges[shown.type]) {
      make(body, "line", {
        x1: x(points[i][0]), y1: y(points[i][1] + turn), x2: x(points[j][0]), y2: y(points[j][1] + turn),
        stroke: INK, "stroke-width": 1.6, "stroke-dasharray": "2 4",
      });
    }
  }

  const radius = jet => (jet.used ? (FRAME === NARROW ? 0.8 : 1) * Math.min(26, Math.max(10, 1.6 * Math.sqrt(jet.pt))) : 7);

  const kindOf = (record, jet) => record.kinds.find(kind => kind.name === jet.kind);
  const short = jet => (jet.kind === "met" ? "met" : (jet.kind === "jet" ? "" : jet.kind[0]) + jet.index);
  const CORNERS = { triangle: [3, -0.5, 1.8], diamond: [4, -0.5, 1.25], square: [4, -0.25, 1.2], pentagon: [5, -0.5, 1.15] }; // first at, in π
  const extent = (record, jet) => radius(jet) * (CORNERS[kindOf(record, jet).shape] || [0, 0, 1])[2];

  function outline(parent, shape, cx, cy, r, style) {
    if (shape === "circle") return make(parent, "circle", { cx, cy, r, ...style });
    const [n, first, size] = CORNERS[shape];
    const corner = k => [cx + size * r * Math.cos(Math.PI * (first + 2 * k / n)), cy + size * r * Math.sin(Math.PI * (first + 2 * k / n))];
    const points = Array.from({ length: n }, (_, k) => corner(k).map(v => v.toFixed(2)).join(",")).join(" ");
    return make(parent, "polygon", { points, ...style });
  }

  // missing energy has a phi but no eta: an arrow from the side, whose length grows with its size
  const arrowLength = jet => Math.min(0.6 * FRAME.width, 40 + 1.6 * jet.pt);

  function arrow(parent, x1, x2, y, size, style) {
    make(parent, "line", { x1, x2: x2 - 2 * size, y1: y, y2: y, "stroke-width": 0.8 * size, stroke: style.fill, ...style });
    make(parent, "polygon", { points: `${x2},${y} ${x2 - 2.6 * size},${y - 1.4 * size} ${x2 - 2.6 * size},${y + 1.4 * size}`, ...style });
  }

  function missing(group, jet, y, small) {
    const { left, right, width } = FRAME;
    make(group, "line", { x1: left, x2: width - right, y1: y, y2: y, stroke: SOFT, "stroke-dasharray": "1 4" });
    arrow(group, left, left + arrowLength(jet), y, 5, { fill: jet.used ? INK : SOFT });
    if (!jet.again) make(group, "text", { x: left + 5, y: y - 8, "font-size": small ? 18 : 13, "font-weight": 600 },
      small ? short(jet) : `${short(jet)} ${jet.pt.toFixed(0)} GeV`);
  }

  function drawObject(svg, record, jet, x, y, small) {
    const group = make(svg, "g", { "class": "pd-object", "data-kind": jet.kind });
    const kind = kindOf(record, jet);
    make(group, "title", {}, [`${jet.kind} ${jet.index}: pT ${jet.pt.toFixed(1)} GeV`, !kind.transverse && `η ${jet.eta.toFixed(2)}`,
      `φ ${jet.phi.toFixed(2)}`, !kind.transverse && `mass ${jet.mass.toFixed(1)} GeV`, jet.btag !== null && `b-tag ${+jet.btag.toFixed(3)}`,
      jet.again ? "copy beyond π" : !jet.used && "not used"].filter(Boolean).join(", "));
    if (kind.transverse) return missing(group, jet, y(jet.phi), small);
    outline(group, kind.shape, x(jet.eta), y(jet.phi), radius(jet), {
      fill: !jet.used ? "none" : jet.tagged ? "#24292f" : "#fff",
      stroke: jet.used ? INK : SOFT, "stroke-width": jet.used ? 2 : 1, ...(jet.used ? {} : { "stroke-dasharray": "2 2" }),
    });
    if (jet.used) make(group, "text", {
      x: x(jet.eta), y: y(jet.phi) + (kind.shape === "triangle" ? 7 : 5), "font-size": small ? 18 : 14, "font-weight": 600, "text-anchor": "middle",
      style: `fill: ${jet.tagged ? "#fff" : INK}`,
    }, short(jet));
  }

  // text with a white outline, at the first place that is free and inside the frame
  function place(svg, places, text, size, taken, style) {
    const w = 0.3 * size * text.length + 1, h = 0.42 * size;
    const clash = ([px, py]) => px - w < FRAME.left || px + w > FRAME.width - FRAME.right || py - h < FRAME.top ||
      py + h > FRAME.height - FRAME.bottom || taken.some(t => Math.abs(t.x - px) < t.w + w && Math.abs(t.y - py) < t.h + h);
    const [px, py] = places.find(at => !clash(at)) || places[0];
    taken.push({ x: px, y: py, w, h });
    make(svg, "text", { x: px, y: py + 0.35 * size, "text-anchor": "middle", stroke: "#fff", "stroke-width": 4, "stroke-linejoin": "round",
      "paint-order": "stroke", "font-size": size, ...style }, text);
  }

  function labels(svg, record, x, y, taken) {
    record.truth.forEach((k, slot) => {
      if (k < 0) return;
      const jet = record.objects[k], r = extent(record, jet), text = record.slots[slot];
      const cx = x(jet.eta), cy = y(jet.phi), side = r + 3.6 * text.length + 5;
      place(svg, [[cx, cy - r - 8], [cx, cy + r + 8], [cx + side, cy], [cx - side, cy], [cx + 0.7 * side, cy - r - 4], [cx - 0.7 * side, cy - r - 4],
        [cx + 0.7 * side, cy + r + 4], [cx - 0.7 * side, cy + r + 4], [cx, cy - r - 20], [cx, cy + r + 20], [cx - side, cy - 16],
        [cx - side, cy + 16], [cx + side, cy - 16], [cx + side, cy + 16]], text, 12, taken, { style: `fill: ${SOFT}` });
    });
  }

  function names(svg, record, particles, colours, x, y, taken) {
    for (const shown of particles) {
      if (shown.preview || shown.objects.length < 2) continue;
      const points = unwrapped(shown.objects.map(k => record.objects[k]));
      const mean = k => points.reduce((sum, p) => sum + p[k], 0) / points.length;
      const cx = x(mean(0)), cy = y(Math.atan2(Math.sin(mean(1)), Math.cos(mean(1))));
      const around = [6, 14, 24, 36, 50].flatMap(r => [[0, -r], [r, 0], [-r, 0], [0, r], [r, -r], [-r, -r], [r, r], [-r, r]]);
      place(svg, [[cx, cy], ...around.map(([dx, dy]) => [cx + dx, cy + dy])], shown.label.split(".").pop(), 15, taken,
        { "font-weight": 700, style: `fill: ${colours[shown.type].colour}` });
    }
  }

  // -- matrices -------------------------------------------------------------------------------------------

  function matrix(parent, record, type, values, kind, logits) {
    const used = record.objects.filter(jet => jet.used);
    const n = values.length, cell = 24, edge = used.some(jet => short(jet).length > 2) ? 30 : 22;
    const figure = make(parent, "figure");
    const svg = make(figure, "svg", { viewBox: `0 0 ${edge + n * cell + 2} ${edge + n * cell + 2}`, role: "img",
      "aria-label": `${kind}, ${type.name}: ${n} by ${n} objects` });
    const size = n > 9 ? 12 : 13;
    used.forEach((jet, k) => {
      const style = { "font-size": size, "text-anchor": "middle", ...(jet.tagged ? { "font-weight": 700, "text-decoration": "underline" } : {}) };
      make(svg, "text", { x: edge + (k + 0.5) * cell, y: 15, ...style }, short(jet));
      make(svg, "text", { x: edge - 4, y: edge + (k + 0.5) * cell + 5, ...style, "text-anchor": "end" }, short(jet));
    });
    const numbers = make(svg, "g", { "class": "pd-values" });
    values.forEach((row, i) => row.forEach((value, j) => {
      const own = i === j ? 0.55 : 1; // the diagonal means: in no particle of this type
      const fill = kind !== "known" ? mix(type.colour, value * own) : value === MASKED ? "#fff" : value ? mix(type.colour, own) : NO_EDGE;
      const rect = make(svg, "rect", { x: edge + j * cell + 0.5, y: edge + i * cell + 0.5, width: cell - 1, height: cell - 1,
        fill, stroke: "#aeb6bf", "stroke-width": 0.6, "data-value": value });
      const who = i === j ? `${used[i].kind} ${used[i].index} in no ${type.name}` : `${used[i].kind} ${used[i].index} and ${used[j].kind} ${used[j].index} in one ${type.name}`;
      const what = kind === "known" ? ["no", "yes", "masked"][value] : percent(value) + (logits ? `, logit ${logits[i][j].toFixed(2)}` : "");
      make(rect, "title", {}, `${who}: ${what}`);
      if (kind !== "known" && n < 11 && value >= 0.005) {
        make(numbers, "text", { x: edge + (j + 0.5) * cell, y: edge + (i + 0.5) * cell + 4, "font-size": 10.5, "text-anchor": "middle",
          style: `fill: ${value * own > 0.6 ? "#fff" : INK}` }, Math.round(100 * value));
      }
    }));
    svg.appendChild(numbers);
    make(figure, "figcaption", {}, type.name);
  }

  function matrices(parent, record, frame) {
    parent.replaceChildren();
    const open = frame.tokens && frame.tokens.flat(2).includes(MASKED);
    const rows = [
      [open ? "Known: masked is white, no edge grey" : "Known: edges coloured, no edge grey", "known", frame.tokens, null],
      ["The network: probability of an edge, in per cent", "network", frame.logits && frame.logits.map(t => t.map(r => r.map(sigmoid))), frame.logits],
      ["All assignments: probability of an edge, in per cent", "marginal", frame.marginals, null],
    ];
    for (const [title, kind, values, logits] of rows) {
      if (!values) continue;
      const box = make(parent, "div");
      make(box, "h4", {}, title);
      const row = make(box, "div", { "class": "pd-row" });
      record.types.forEach((type, t) => { if (type.height || record.edges[type.name].length) matrix(row, record, type, values[t], kind, logits && logits[t]); });
    }
  }

  // -- lists ----------------------------------------------------------------------------------------------

  const members = (record, shown) => shown.objects.map(k => short(record.objects[k])).join(" ") + (shown.neutrino ? " + ν" : "");

  function chip(parent, record, shown) {
    const type = record.types.find(t => t.name === shown.type);
    const node = make(parent, "span", { "class": "pd-chip" }, `${shown.label}: ${members(record, shown)}` +
      (shown.mass === null ? "" : ` · ${shown.mass.toFixed(0)} GeV`));
    node.style.borderColor = type.colour;
  }

  function head(table, columns) {
    const row = make(make(table, "thead"), "tr");
    for (const [text, number] of columns) make(row, "th", { scope: "col", ...(number ? { "class": "pd-number" } : {}) }, text);
    return make(table, "tbody");
  }

  function candidates(parent, record, frame, preview) {
    parent.replaceChildren();
    if (!frame.candidates.length) return;
    const whole = frame.marginals !== null;
    make(parent, "h4", {}, whole ? "Leading assignments" : "Candidates of this step");
    const known = frame.candidates.some(c => c.right !== null);
    const body = head(make(make(parent, "div", { "class": "pd-scroll" }), "table"),
      [["objects"], ["probability", true], [""], ...(known ? [["truth"]] : [])]);
    for (const candidate of frame.candidates) {
      const row = make(body, "tr", { tabindex: 0, ...(candidate.chosen ? { "class": "pd-chosen", "aria-current": "true" } : {}) });
      const cell = make(row, "td");
      for (const shown of candidate.particles) chip(cell, record, shown);
      if (!candidate.particles.length) cell.textContent = "nothing";
      make(row, "td", { "class": "pd-number" }, percent(candidate.probability));
      const bar = make(make(row, "td", { style: "width: 28%" }), "span", { "class": "pd-bar" });
      bar.style.width = `${100 * candidate.probability}%`;
      if (known) make(row, "td", { "class": "pd-mark" }, verdict(candidate.right));
      for (const [on, off] of [["mouseenter", "mouseleave"], ["focus", "blur"]]) {
        row.addEventListener(on, () => preview(candidate));
        row.addEventListener(off, () => preview(null));
      }
    }
    if (frame.others > 0) make(parent, "p", { "class": "pd-about" }, `and ${frame.others} more, together ${percent(frame.others_probability)}`);
  }

  function answer(parent, record, frame) {
    parent.replaceChildren();
    const list = frame.particles;
    if (!list.length) return;
    make(parent, "h4", {}, "Particles known");
    const chance = list.some(s => s.probability !== null), known = list.some(s => s.right !== null);
    const body = head(make(make(parent, "div", { "class": "pd-scroll" }), "table"),
      [["particle"], ["objects"], ["mass / GeV", true], ...(chance ? [["probability", true]] : []), ...(known ? [["truth"]] : [])]);
    for (const shown of list) {
      const row = make(body, "tr");
      const name = make(row, "td");
      make(name, "strong", {}, shown.label).style.color = record.types.find(t => t.name === shown.type).colour;
      make(row, "td", {}, members(record, shown));
      make(row, "td", { "class": "pd-number" }, shown.mass === null ? "" : shown.mass.toFixed(1));
      if (chance) make(row, "td", { "class": "pd-number" }, percent(shown.probability));
      if (known) make(row, "td", { "class": "pd-mark" }, verdict(shown.right));
    }
  }

  function objectTable(parent, record) {
    make(parent, "h4", {}, "Objects");
    const body = head(make(make(parent, "div", { "class": "pd-scroll" }), "table"),
      [["object"], ["pT / GeV", true], ["η", true], ["φ", true], ["mass / GeV", true], ["b-tag", true]]);
    for (const jet of record.objects) {
      const row = make(body, "tr");
      make(row, "td", {}, `${jet.kind} ${jet.index}${jet.used ? "" : " (not used)"}`);
      const { transverse } = kindOf(record, jet);
      for (const value of [jet.pt.toFixed(1), transverse ? "" : jet.eta.toFixed(2), jet.phi.toFixed(2), transverse ? "" : jet.mass.toFixed(1),
        jet.btag === null ? "" : +jet.btag.toFixed(3)])
        make(row, "td", { "class": "pd-number" }, String(value).replace(/^-(?!0\.?0*$)/, "−").replace(/^-/, ""));
    }
  }

  function legend(parent, record) {
    const list = make(parent, "ul", { "class": "pd-legend" });
    const item = (draw, text) => {
      const li = make(list, "li");
      draw(make(li, "svg", { viewBox: "0 0 22 16", "aria-hidden": "true" }));
      make(li, "span", {}, text);
    };
    for (const kind of record.kinds) {
      const jets = kind.name === "jet";
      if (kind.transverse) item(svg => arrow(svg, 1, 21, 8, 4, { fill: INK }), kind.name);
      else item(svg => outline(svg, kind.shape, 11, kind.shape === "triangle" ? 10 : 8, kind.shape === "circle" ? 6.5 : 5, { fill: "#fff", stroke: INK, "stroke-width": 1.5 }), jets ? "jet, area by pT" : kind.name);
      if (jets) item(svg => make(svg, "circle", { cx: 11, cy: 8, r: 6.5, fill: "#24292f", stroke: INK }), "b-tagged");
    }
    for (const type of record.types) {
      if (!record.edges[type.name].length) continue;
      item(svg => make(svg, "line", { x1: 1, x2: 21, y1: 8, y2: 8, stroke: type.colour, "stroke-width": 4, ...(type.height ? { "stroke-dasharray": "6 4" } : {}) }), type.name);
    }
    if (record.true_particles.length) item(svg => make(svg, "line", { x1: 1, x2: 21, y1: 8, y2: 8, stroke: INK, "stroke-width": 1.6, "stroke-dasharray": "2 3" }), "true, not found");
    if (record.objects.some(jet => !jet.used)) item(svg => make(svg, "circle", { cx: 11, cy: 8, r: 6, fill: "#fff", stroke: SOFT, "stroke-dasharray": "2 2" }), "not used");
  }

  // -- the whole ------------------------------------------------------------------------------------------

  function mount(root, record, options = {}) {
    root.replaceChildren();
    root.classList.add("pd");
    const about = make(root, "header");
    make(about, options.heading || "h2", {}, record.name);
    make(about, "p", { "class": "pd-about" }, [record.source, record.id && `id ${record.id}`, record.topology, record.model && `model ${record.model}`,
      record.decoding && `decoding ${record.decoding}`, record.status !== "ok" && `status ${record.status}`].filter(Boolean).join(" · "));
    if (record.event_probability !== null || record.right !== null) make(about, "p", { "class": "pd-verdict" },
      [record.event_probability !== null && `probability of the answer ${percent(record.event_probability)}`, verdict(record.right)].filter(Boolean).join(" · "));

    const controls = make(root, "div", { "class": "pd-controls" });
    const back = make(controls, "button", { type: "button", "aria-label": "previous step" }, "←");
    const last = record.frames.length - 1;
    const slider = make(controls, "input", { type: "range", min: 0, max: last, step: 1, value: 0, "aria-label": "step" });
    const next = make(controls, "button", { type: "button", "aria-label": "next step" }, "→");
    const count = make(controls, "span", { "class": "pd-count" });
    if (last === 0) controls.style.display = "none";
    const live = make(root, "div", { "aria-live": "polite" });
    const title = make(live, "h3"), note = make(live, "p", { "class": "pd-note" });

    const main = make(root, "div", { "class": "pd-main" });
    const left = make(main, "figure");
    const svg = make(left, "svg", { role: "img" });
    legend(left, record);
    let showTruth = record.truth !== null;
    if (record.truth !== null) {
      const label = make(left, "label", { "class": "pd-truth" });
      const box = make(label, "input", { type: "checkbox" });
      box.checked = true;
      make(label, "span", {}, "show the truth");
      box.addEventListener("change", () => { showTruth = box.checked; draw(null); });
    }
    const right = make(main, "div", { "class": "pd-rows" });
    const lower = make(root, "div", { "class": "pd-lower" });
    const side = make(lower, "div", { "class": "pd-rows" });
    const choices = make(side, "div"), known = make(side, "div");
    objectTable(make(lower, "div"), record);
    let at = 0;

    function draw(previewed) {
      const frame = record.frames[at];
      const chosen = frame.marginals === null ? frame.candidates.filter(c => c.chosen).flatMap(c => c.particles) : [];
      const covered = new Set(chosen.flatMap(s => s.objects.join(" ")));
      let shown = [...frame.particles.filter(s => !covered.has(s.objects.join(" "))), ...chosen.map(s => ({ ...s, fresh: true }))];
      if (previewed) shown = [...(frame.marginals === null ? frame.particles : []), ...previewed.particles.map(s => ({ ...s, preview: true }))];
      const found = new Set(shown.filter(s => s.right === true).map(s => `${s.type} ${[...s.objects].sort().join(" ")}`));
      const truth = showTruth && at > 0 && at === last || showTruth && frame.marginals !== null && at > 0
        ? record.true_particles.filter(s => !found.has(`${s.type} ${[...s.objects].sort().join(" ")}`)) : [];
      plane(svg, record, shown, { truth, labels: showTruth && record.truth !== null });
      const list = shown.map(s => `${s.label} of ${s.objects.map(k => short(record.objects[k])).join(", ")}`).join("; ");
      svg.setAttribute("aria-label", `${record.objects.length} objects in the plane of eta and phi. ${list}`);
    }

    function go(frame) {
      at = Math.min(Math.max(frame, 0), last);
      const now = record.frames[at];
      slider.value = at;
      slider.setAttribute("aria-valuetext", now.title);
      count.textContent = `${at + 1} / ${last + 1}`;
      back.disabled = at === 0;
      next.disabled = at === last;
      title.textContent = now.title;
      note.textContent = now.note;
      draw(null);
      matrices(right, record, now);
      candidates(choices, record, now, draw);
      answer(known, record, now);
    }

    slider.addEventListener("input", () => go(+slider.value));
    back.addEventListener("click", () => go(at - 1));
    next.addEventListener("click", () => go(at + 1));
    root.onkeydown = event => {
      if (event.target === slider || !(event.key === "ArrowLeft" || event.key === "ArrowRight")) return;
      event.preventDefault();
      event.stopPropagation();
      go(at + (event.key === "ArrowRight" ? 1 : -1));
    };
    root.tabIndex = 0;
    new ResizeObserver(() => draw(null)).observe(left);
    go(record.frames[0].marginals !== null ? 1 : last); // the answer; `go` keeps within the frames
    return { go, key: root.onkeydown };
  }

  function thumbnail(root, record) {
    const svg = make(root, "svg", { role: "img", "aria-label": `${record.name}: ${record.answer.length} particles` });
    plane(svg, record, record.answer, { small: true, truth: record.true_particles.filter(s => !record.answer.some(a =>
      a.right && a.type === s.type && [...a.objects].sort().join() === [...s.objects].sort().join())) });
  }

  return { mount, thumbnail };
})();
