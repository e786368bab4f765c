"""How a report's page looks: on light and on dark screens, narrow and wide ones, and on paper."""

CSS = """
:root {
  color-scheme: light dark;
  --paper: #fff; --ink: #1b1b1d; --faint: #5c5f66; --line: #d8dade; --raised: #f5f6f8; --link: #00589c;
  --passed: #00664a; --failed: #a8320a; --undecided: #7a5600; --skipped: #5c5f66;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #16171a; --ink: #e6e7ea; --faint: #a4a8b0; --line: #383b42; --raised: #1f2126; --link: #7cc0f4;
    --series-0: #4aa8e0; --series-1: #ff8a4c; --series-2: #2fc79d; --series-3: #e3a4c9; --series-4: #f2b63d;
    --series-5: #9ad4f5; --passed: #4fd0a5; --failed: #ff9a70; --undecided: #ecc35a; --skipped: #a4a8b0;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem clamp(1rem, 4vw, 3rem) 3rem; max-width: 76rem;
  background: var(--paper); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif;
}
header { border-bottom: 1px solid var(--line); margin-bottom: 1.5rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .75rem; }
p { max-width: 46rem; margin: 0 0 .75rem; overflow-wrap: anywhere; }
a { color: var(--link); }
.scrolled { overflow-x: auto; margin-bottom: .75rem; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .3rem .8rem .3rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
td { overflow-wrap: anywhere; max-width: 34rem; }
th { font-weight: 600; white-space: nowrap; }
thead th { color: var(--faint); vertical-align: bottom; }
tbody tr:hover { background: var(--raised); }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.badge {
  display: inline-block; padding: 0 .55rem; border: 1px solid currentColor; border-radius: 1rem;
  font-size: .85rem; font-weight: 600; white-space: nowrap;
}
.badge.passed { color: var(--passed); }
.badge.failed { color: var(--failed); }
.badge.undecided { color: var(--undecided); }
.badge.skipped { color: var(--skipped); }
figure { margin: 0 0 2rem; }
figure svg { display: block; width: 100%; height: auto; }
figcaption, footer { color: var(--faint); font-size: .9rem; max-width: 46rem; }
footer { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: .75rem; max-width: none; }
@media print {
  :root {
    --paper: #fff; --ink: #000; --faint: #444; --line: #bbb; --raised: #fff; --link: #000;
    --series-0: initial; --series-1: initial; --series-2: initial; --series-3: initial; --series-4: initial;
    --series-5: initial; --passed: #00664a; --failed: #a8320a; --undecided: #7a5600; --skipped: #444;
  }
  body { max-width: none; padding: 0; font-size: 9.5pt; }
  .scrolled { overflow: visible; }
  table { font-size: 8.5pt; }
  figure, tr { break-inside: avoid; }
  h2 { break-after: avoid; }
  thead { display: table-header-group; }
}
""".strip()
