/** The section of templates: names with YAML, to use or delete. */
import { h, rebuilder } from '../../dom/dom.js';
import type { ITrans } from '../../model/trans.js';
import type { IApi } from '../tokens.js';
import { textButton } from './rowparts.js';
import { toYaml } from './yaml.js';
import type { ITemplateView } from '../../model/answers.js';

export interface ITemplateOperations {
  use: (template: ITemplateView) => Promise<void>;
  /** Confirms the deletion. */
  mayDelete: (name: string) => Promise<boolean>;
  mayWrite: () => boolean;
  /** Called with the number of templates, and '' or why they cannot be read. */
  onRead: (count: number, problem: string) => void;
  say: (problem: string) => void;
}

export class Templates {
  readonly node = h('div.det-templates');

  constructor(
    private readonly _trans: ITrans,
    private readonly _api: IApi,
    private readonly _operations: ITemplateOperations
  ) {}

  /** Fetch the templates. */
  async read(): Promise<void> {
    try {
      const templates = await this._api.get<ITemplateView[]>('api/templates');
      this._draw({ templates, mayWrite: this._operations.mayWrite() });
      this._operations.onRead(templates.length, '');
    } catch (error) {
      this._draw({ templates: [], mayWrite: false });
      this._operations.onRead(0, error instanceof Error ? error.message : String(error));
    }
  }

  private _template(template: ITemplateView, mayWrite: boolean): HTMLElement {
    const { _trans: trans } = this;
    const { name, config } = template;
    const use = textButton(trans.__('Use in a new cell'), () => this._operations.use(template));
    const remove = textButton(trans.__('Delete'), () => this._delete(name));
    remove.hidden = !mayWrite;
    const keys = Object.keys(config);
    const node = h(
      'details.det-template',
      { open: this._open.has(name) },
      h(
        'summary',
        {},
        h('b', { title: name }, name),
        h('span', { title: keys.join(', ') }, keys.join(', '))
      ),
      h('pre', { tabindex: 0, 'aria-label': trans.__('Template %1', name) }, toYaml(config)),
      h('div.det-template-buttons', {}, use, remove)
    );
    node.addEventListener('toggle', () => {
      if (node.open) {
        this._open.add(name);
      } else {
        this._open.delete(name);
      }
    });
    return node;
  }

  private async _delete(name: string): Promise<void> {
    if (!(await this._operations.mayDelete(name))) {
      return;
    }
    try {
      await this._api.delete(`api/templates/${encodeURIComponent(name)}`);
    } catch (error) {
      this._operations.say(error instanceof Error ? error.message : String(error));
    }
    await this.read();
  }

  private readonly _open = new Set<string>();
  private readonly _draw = rebuilder(
    this.node,
    ({ templates, mayWrite }: { templates: ITemplateView[]; mayWrite: boolean }) =>
      templates.map(template => this._template(template, mayWrite))
  );
}
