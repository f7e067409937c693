// Steps through the record of one event (see pairton.report.record). The plane is an SVG of pairton.report.picture, whose
// layers are shown and hidden. All other text goes through textContent or attributes, never through markup.
"use strict";
const pairtonDisplay = (() => {
  const MASKED = 2;

  function make(parent, name, attributes = {}, text) {
    const node = document.createElement(name);
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

  // -- the eta-phi plane ----------------------------------------------------------------------------------

  function layer(record, prefix, shown) {
    const objects = [...shown.objects].sort((a, b) => a - b).join("-");
    return `${prefix}-${record.types.findIndex(type => type.name === shown.type)}-${objects}`;
  }

  function plane(parent, record) {
    const svg = document.importNode(new DOMParser().parseFromString(record.plane, "image/svg+xml").documentElement, true);
    svg.removeAttribute("width");
    svg.removeAttribute("height");
    record.objects.forEach((object, k) => {
      const transverse = record.transverse.includes(object.kind);
      const about = [`${object.kind} ${object.index}: pT ${object.pt.toFixed(1)} GeV`, !transverse && `η ${object.eta.toFixed(2)}`,
        `φ ${object.phi.toFixed(2)}`, !transverse && `mass ${object.mass.toFixed(1)} GeV`,
        object.btag !== null && `b-tag ${+object.btag.toFixed(3)}`, !object.used && "not used"].filter(Boolean).join(", ");
      for (const group of svg.getElementsByClassName(`o-${k}`))
        group.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "title")).textContent = about;
    });
    parent.appendChild(svg);
    return svg;
  }

  // show particles, the names of those that are no preview, true particles that are not among them, and labels
  function show(svg, record, particles, truth, labels) {
    const fresh = new Set(particles.filter(s => s.fresh).map(s => layer(record, "p", s)));
    const preview = new Set(particles.filter(s => s.preview).map(s => layer(record, "p", s)));
    const found = new Set(particles.filter(s => s.right === true).map(s => layer(record, "t", s)));
    const visible = new Set(particles.map(s => layer(record, "p", s)));
    for (const s of particles) if (!s.preview) visible.add(layer(record, "n", s));
    if (truth) for (const s of record.true_particles) if (!found.has(layer(record, "t", s))) visible.add(layer(record, "t", s));
    if (labels) visible.add("labels");
    for (const group of svg.getElementsByClassName("pd-layer")) {
      const name = group.classList[1];
      group.style.display = visible.has(name) ? "" : "none";
      group.classList.toggle("pd-fresh", fresh.has(name));
      group.classList.toggle("pd-preview", preview.has(name));
    }
  }

  // -- matrices -------------------------------------------------------------------------------------------

  function matrix(parent, record, type, values, kind, logits) {
    const used = record.objects.map((object, k) => ({ ...object, short: record.short[k] })).filter(object => object.used);
    const figure = make(parent, "figure");
    const table = make(figure, "table", { "class": "pd-matrix", "aria-label": `${kind}, ${type.name}: ${used.length} by ${used.length} objects` });
    table.style.fontSize = `${Math.min(0.68, 4.6 / used.length)}rem`;
    const heading = (row, object) => make(row, "th", object.tagged ? { "class": "pd-tagged" } : {}, object.short);
    const top = make(table, "tr");
    make(top, "th");
    used.forEach(object => heading(top, object));
    values.forEach((line, i) => {
      const row = make(table, "tr");
      heading(row, used[i]);
      line.forEach((value, j) => {
        const own = i === j ? 0.55 : 1; // the diagonal means: in no particle of this type
        const fill = kind !== "known" ? mix(type.colour, value * own) : value === MASKED ? "#fff" : value ? mix(type.colour, own) : "#d3d7dd";
        const who = i === j ? `${used[i].kind} ${used[i].index} in no ${type.name}` : `${used[i].kind} ${used[i].index} and ${used[j].kind} ${used[j].index} in one ${type.name}`;
        const what = kind === "known" ? ["no", "yes", "masked"][value] : percent(value) + (logits ? `, logit ${logits[i][j].toFixed(2)}` : "");
        const number = kind !== "known" && used.length < 11 && value >= 0.005;
        const cell = make(row, "td", { title: `${who}: ${what}`, "data-value": value }, number ? Math.round(100 * value) : "");
        cell.style.background = fill;
        if (value * own > 0.6) cell.style.color = "#fff";
      });
    });
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
      record.types.forEach((type, t) => { if (type.matrix) matrix(row, record, type, values[t], kind, logits && logits[t]); });
    }
  }

  // -- lists ----------------------------------------------------------------------------------------------

  const members = (record, shown) => shown.objects.map(k => record.short[k]).join(" ") + (shown.neutrino ? " + ν" : "");

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
      const transverse = record.transverse.includes(jet.kind);
      for (const value of [jet.pt.toFixed(1), transverse ? "" : jet.eta.toFixed(2), jet.phi.toFixed(2), transverse ? "" : jet.mass.toFixed(1),
        jet.btag === null ? "" : +jet.btag.toFixed(3)])
        make(row, "td", { "class": "pd-number" }, String(value).replace(/^-(?!0\.?0*$)/, "−").replace(/^-/, ""));
    }
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
    const svg = plane(left, record);
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
      const covered = new Set(chosen.map(s => layer(record, "p", s)));
      let shown = [...frame.particles.filter(s => !covered.has(layer(record, "p", s))), ...chosen.map(s => ({ ...s, fresh: true }))];
      if (previewed) shown = [...(frame.marginals === null ? frame.particles : []), ...previewed.particles.map(s => ({ ...s, preview: true }))];
      show(svg, record, shown, showTruth && at > 0 && (at === last || frame.marginals !== null), showTruth);
      const list = shown.map(s => `${s.label} of ${s.objects.map(k => record.short[k]).join(", ")}`).join("; ");
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
    go(record.frames[0].marginals !== null ? 1 : last); // the answer; `go` keeps within the frames
    return { go, key: root.onkeydown };
  }

  function thumbnail(root, record) {
    show(plane(root, record), record, record.answer, true, false);
  }

  return { mount, thumbnail };
})();
