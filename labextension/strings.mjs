// The strings that people read, for translators.
//
//     node strings.mjs           gettext's det_jupyter.pot, to the standard output
//     node strings.mjs json      as JSON: [{context, text, plural, places}]
//
// They are the literal arguments of `trans.__(...)` and its like in src/, and what JupyterLab's
// server translates in schema/. `findStrings().problems` lists calls without literals: their text
// would never be found by translators.
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

import ts from 'typescript';

const HERE = dirname(fileURLToPath(import.meta.url));

// How many of a method's first arguments are text, and which of them is the context.
const METHODS = {
  __: { texts: 1 },
  gettext: { texts: 1 },
  _n: { texts: 2 },
  ngettext: { texts: 2 },
  _p: { texts: 2, hasContext: true },
  _np: { texts: 3, hasContext: true }
};
const TABLES = 'src/model/state.ts';
const NAMES = /^(_?trans|english)$/;

// As jupyterlab_server's translation_utils.py has them; a schema can add more.
const SELECTORS = [
  ['properties/.*/title', 'settings'],
  ['properties/.*/description', 'settings'],
  ['title', 'schema'],
  ['description', 'schema'],
  ['jupyter\\.lab\\.setting-icon-label', 'settings'],
  ['jupyter\\.lab\\.menus/.*/label', 'menu'],
  ['jupyter\\.lab\\.toolbars/.*/label', 'toolbar']
];

export function findStrings() {
  const found = new Map();
  const problems = [];
  const add = (context, text, plural, place) => {
    const key = `${context}\u0004${text}`;
    const entry = found.get(key) ?? { context, text, plural, places: [] };
    entry.plural ||= plural;
    entry.places.push(place);
    found.set(key, entry);
  };
  sources().forEach(path => readSource(path, add, problems));
  readTables(add);
  for (const name of readdirSync(join(HERE, 'schema'))) {
    const schema = JSON.parse(readFileSync(join(HERE, 'schema', name), 'utf8'));
    readSchema(schema, `schema/${name}`, add);
  }
  const strings = [...found.values()].sort((a, b) => (a.text < b.text ? -1 : 1));
  return { strings, problems };
}

function sources() {
  const names = readdirSync(join(HERE, 'src'), { recursive: true }).sort();
  return names.filter(name => name.endsWith('.ts')).map(name => join(HERE, 'src', name));
}

function readSource(path, add, problems) {
  const text = readFileSync(path, 'utf8');
  const source = ts.createSourceFile(path, text, ts.ScriptTarget.ES2022, true);
  const name = relative(HERE, path).replaceAll('\\', '/');
  const visit = node => {
    const method = methodOf(node);
    if (method !== null) {
      const { texts, hasContext = false } = METHODS[method];
      const line = source.getLineAndCharacterOfPosition(node.getStart()).line + 1;
      const given = node.arguments.slice(0, texts);
      if (given.length === texts && given.every(isLiteral)) {
        const [context, singular, plural = ''] = given.map(textOf);
        add(
          ...(hasContext ? [context, singular, plural] : ['', context, singular ?? '']),
          `${name}:${line}`
        );
      } else if (!isOfTable(given)) {
        problems.push(`${name}:${line}: ${node.getText()}`);
      }
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
}

// 'a text ' + 'in two lines' is literal, too.
function isLiteral(node) {
  return ts.isBinaryExpression(node)
    ? node.operatorToken.kind === ts.SyntaxKind.PlusToken &&
        isLiteral(node.left) &&
        isLiteral(node.right)
    : ts.isStringLiteralLike(node);
}

function textOf(node) {
  return ts.isBinaryExpression(node) ? textOf(node.left) + textOf(node.right) : node.text;
}

// The words of src/model/state.ts, which are added below.
function isOfTable([argument]) {
  const text = argument?.getText() ?? '';
  return /^(look|MARKS\[\w+\])\.word$/.test(text) || /^STATUS_WORDS\[[\w.]+\]$/.test(text);
}

function readTables(add) {
  const text = readFileSync(join(HERE, TABLES), 'utf8');
  const words = (name, pattern) => [
    ...(new RegExp(`^export const ${name}\\b.*$`, 'm').exec(text)?.[0] ?? '').matchAll(pattern)
  ];
  [...words('MARKS', /word: '([^']+)'/g), ...words('STATUS_WORDS', /: '([^']+)'/g)].forEach(
    ([, word]) => add('', word, '', TABLES)
  );
}

// The method's name if the node is `trans.__(…)`, `this._trans._n(…)`, `det.trans.__(…)`…
function methodOf(node) {
  if (!ts.isCallExpression(node) || !ts.isPropertyAccessExpression(node.expression)) {
    return null;
  }
  const { expression: bundle, name } = node.expression;
  const last = ts.isPropertyAccessExpression(bundle) ? bundle.name.text : bundle.getText();
  return Object.hasOwn(METHODS, name.text) && NAMES.test(last) ? name.text : null;
}

function readSchema(schema, place, add) {
  const own = schema['jupyter.lab.internationalization']?.selectors ?? [];
  const selectors = [...SELECTORS, ...own.map(selector => [selector, 'schema'])].map(
    ([pattern, context]) => [new RegExp(`^/${pattern}$`), context]
  );
  const visit = (value, path) => {
    for (const [key, inner] of Object.entries(value)) {
      const where = `${path}/${key}`;
      if (typeof inner === 'string') {
        const context = selectors.find(([pattern]) => pattern.test(where))?.[1];
        if (context !== undefined) {
          add(context, inner, '', place);
        }
      } else if (Array.isArray(inner)) {
        inner
          .filter(one => typeof one === 'object')
          .forEach((one, i) => visit(one, `${where}[${i}]`));
      } else if (typeof inner === 'object' && inner !== null) {
        visit(inner, where);
      }
    }
  };
  visit(schema, '');
}

function toPot(strings) {
  const quote = text => JSON.stringify(text);
  const head = [
    'msgid ""',
    'msgstr ""',
    '"Content-Type: text/plain; charset=UTF-8\\n"',
    '"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\\n"'
  ];
  const entries = strings.map(({ context, text, plural, places }) =>
    [
      `#: ${places.join(' ')}`,
      ...(context === '' ? [] : [`msgctxt ${quote(context)}`]),
      `msgid ${quote(text)}`,
      ...(plural === ''
        ? ['msgstr ""']
        : [`msgid_plural ${quote(plural)}`, 'msgstr[0] ""', 'msgstr[1] ""'])
    ].join('\n')
  );
  return `${[head.join('\n'), ...entries].join('\n\n')}\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { strings } = findStrings();
  process.stdout.write(process.argv[2] === 'json' ? JSON.stringify(strings) : toPot(strings));
}
