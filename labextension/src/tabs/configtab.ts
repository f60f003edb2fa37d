/** The tab of the effective configuration: each value and its origin. */
import { copyButton } from '../dom/copy.js';
import { h, setHidden, setText } from '../dom/dom.js';
import type { ITrans } from '../model/trans.js';
import { AnswerPanel } from './answerpanel.js';
import type { ITab, ITabContext } from './tab.js';
import type { IConfigText } from '../model/answers.js';

export function configTab(context: ITabContext): ITab {
  return {
    id: 'config',
    label: context.requests.trans.__('Config'),
    open: host => new ConfigPanel(context, host)
  };
}

class ConfigPanel extends AnswerPanel<IConfigText> {
  constructor({ requests, ask }: ITabContext, host: HTMLElement) {
    super({ ask, type: 'config', slowHint: requests.slowHint });
    const { trans } = requests;
    this._trans = trans;
    const label = trans.__('Search');
    this._search = h('input.det-field.det-log-search', {
      type: 'search',
      placeholder: label,
      'aria-label': label
    });
    this._origin = h(
      'select.det-field',
      { 'aria-label': trans.__('Who gave it') },
      h('option', { value: '' }, trans.__('all values')),
      ...Object.entries(this._words()).map(([value, word]) => h('option', { value }, word))
    );
    this._search.addEventListener('input', () => this._list());
    this._origin.addEventListener('change', () => this._list());
    const copy = copyButton(trans, trans.__('Copy the YAML'), this._box, () => this._yaml);
    const tools = h('div.det-line', {}, this._search, this._origin, this._said);
    tools.append(h('div.det-aside', {}, copy));
    setHidden(this._box, true); // before the first answer
    host.append(tools, this._notices, this._box);
  }

  /** The configuration does not change. */
  update(): void {
    this._note('');
  }

  protected _draw({ yaml, template, notices }: IConfigText): void {
    this._yaml = yaml;
    this._lines = configLines(yaml);
    setHidden(this._box, false);
    const about = template === null ? [] : [this._trans.__('template %1', template)];
    this._notices.replaceChildren(...[...about, ...notices].map(text => h('p', {}, text)));
    this._list();
  }

  private _list(): void {
    const origin = (this._origin.value || null) as Origin | null;
    const shown = fittingLines(this._lines, this._search.value, origin);
    this._box.replaceChildren(...shown.map(line => this._line(line)));
    if (this._lines.length > 0) {
      setText(this._said, shown.length === 0 ? this._trans.__('No match.') : '');
    }
  }

  private _line({ text, origins }: IConfigLine): HTMLElement {
    const words = origins.filter(one => one !== 'submitted').map(one => this._words()[one]);
    const note = words.length === 0 ? null : h('span.det-origin', {}, words.join(', '));
    return h(
      'div.det-config-line',
      { 'data-origin': origins.join(' ') },
      h('span', {}, text),
      note
    );
  }

  private _words(): Record<Origin, string> {
    const trans = this._trans;
    return {
      submitted: trans.__('submitted'),
      template: trans.__('template'),
      default: trans.__('default')
    };
  }

  private readonly _trans: ITrans;
  private readonly _search: HTMLInputElement;
  private readonly _origin: HTMLSelectElement;
  private readonly _notices = h('div.det-quiet');
  private readonly _box = h('div.det-config', { tabindex: 0 });
  private _lines: IConfigLine[] = [];
  private _yaml = '';
}

export type Origin = 'submitted' | 'template' | 'default';

export interface IConfigLine {
  text: string;
  depth: number;
  /** The origins of the line's value; several if its items differ. */
  origins: Origin[];
}

const WORDS: Record<string, Origin> = {
  you: 'submitted',
  template: 'template',
  default: 'default'
};
const COMMENT = / +# ([a-z, ]+)$/;

/** Parses the comments that det_jupyter/config/yaml_output.py writes after values which the user did not set. */
export function configLines(yaml: string): IConfigLine[] {
  const texts = yaml.split('\n').filter(line => line.trim() !== '');
  return texts.map(line => {
    const comment = COMMENT.exec(line)?.[1];
    const words = comment?.split(', ').map(word => WORDS[word]) ?? [];
    const known = words.filter(word => word !== undefined);
    const isComment = known.length > 0 && known.length === words.length;
    const text = isComment ? line.replace(COMMENT, '') : line;
    const isSection = text.endsWith(':');
    return {
      text,
      depth: line.length - line.trimStart().length,
      origins: isComment ? known : isSection ? [] : ['submitted']
    };
  });
}

/** The matching lines, with their sections and all lines of matching sections. */
export function fittingLines(
  lines: readonly IConfigLine[],
  text: string,
  origin: Origin | null
): IConfigLine[] {
  const wanted = text.toLowerCase();
  const kept = new Set<number>();
  const above: number[] = [];
  lines.forEach(({ depth, origins }, i) => {
    while (above.length > 0 && (lines[above.at(-1) as number] as IConfigLine).depth >= depth) {
      above.pop();
    }
    const isNamed = [i, ...above].some(at => lines[at]?.text.toLowerCase().includes(wanted));
    const isFrom = origin === null || origins.includes(origin);
    const isWanted = origins.length > 0 || (wanted === '' && origin === null);
    if (isNamed && isFrom && isWanted) {
      [...above, i].forEach(at => kept.add(at));
    }
    above.push(i);
  });
  return lines.filter((_, i) => kept.has(i));
}
